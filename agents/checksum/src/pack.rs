//! Files are read in packs, so that small ones do not cost a message each. Pure.

use crate::store::Pending;

/// How large packs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// A pack that has so many bytes is full.
    pub bytes: u64,
    /// And so is one of so many files.
    pub files: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            bytes: 5 << 20,
            files: 1000,
        }
    }
}

/// Fills packs with files, in the order in which they come.
#[derive(Debug)]
pub struct Packer {
    sizes: Sizes,
    files: Vec<Pending>,
    bytes: u64,
}

impl Packer {
    /// Packs of this size.
    pub fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            files: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a file; returns the pack that it fills.
    pub fn add(&mut self, file: Pending) -> Option<Vec<Pending>> {
        self.bytes = self.bytes.saturating_add(file.attributes().size);
        self.files.push(file);
        let is_full = self.bytes >= self.sizes.bytes || self.files.len() >= self.sizes.files;
        is_full.then(|| self.take())
    }

    /// What is left, if anything is: nobody waits for an empty pack.
    pub fn rest(&mut self) -> Option<Vec<Pending>> {
        (!self.files.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> Vec<Pending> {
        self.bytes = 0;
        std::mem::take(&mut self.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Attributes;
    use crate::judge::Known;
    use crate::path::RelativePath;
    use crate::read::Task;

    fn packs(sizes: &[u64], of: Sizes) -> Vec<usize> {
        let mut packer = Packer::new(of);
        let mut packs = Vec::new();
        for size in sizes {
            let path = RelativePath::new(*b"a");
            let attributes = Attributes {
                size: *size,
                mtime: 0,
                ctime: 0,
            };
            packs.extend(packer.add(Pending {
                key: path.key(),
                task: Task {
                    path,
                    attributes: Some(attributes),
                },
                known: Known {
                    changed_run: 1,
                    read_run: 0,
                    checksum: None,
                },
            }));
        }
        packs.extend(packer.rest());
        packs.iter().map(Vec::len).collect()
    }

    #[test]
    fn a_pack_is_full_by_bytes_or_by_number() {
        let of = Sizes {
            bytes: 10,
            files: 3,
        };
        assert_eq!(packs(&[1, 1, 1, 1], of), [3, 1]);
        assert_eq!(packs(&[4, 6, 100, 1], of), [2, 1, 1]);
        assert!(packs(&[], of).is_empty());
    }
}
