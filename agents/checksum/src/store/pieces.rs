//! Pieces of large files that have come back: kept until their file is done, for who goes on with the run.

use super::dialect::list;
use super::link::{Row, Value, values};
use super::write_back::again;
use super::{Error, Run, Store, View};
use crate::judge::RunId;
use crate::path::Key;
use crate::split::{PieceSum, Span};

const COLUMNS: &str = "hash, start, length, size, ctime, node";

impl Store {
    /// Keeps pieces; one that is there already is the same, or a newer one of its file.
    pub async fn keep_pieces(&self, run: RunId, pieces: &[(Key, PieceSum)]) -> Result<(), Error> {
        again(|| self.try_keep_pieces(run, pieces)).await
    }

    async fn try_keep_pieces(&self, run: RunId, pieces: &[(Key, PieceSum)]) -> Result<(), Error> {
        let mut link = self.begin().await?;
        for pieces in pieces.chunks(self.view.dialect.named_rows()) {
            let replace = format!(
                "REPLACE INTO orrery_pieces (fs, run, {COLUMNS}) VALUES {}",
                list("(?, ?, ?, ?, ?, ?, ?, ?)", pieces.len())
            );
            let mut values = Vec::with_capacity(pieces.len() * 8);
            for (key, sum) in pieces {
                let PieceSum {
                    span,
                    size,
                    ctime,
                    node,
                } = sum;
                values.extend(values![
                    self.view.fs,
                    run,
                    key.as_bytes(),
                    span.offset,
                    span.length,
                    *size,
                    *ctime,
                    &node[..]
                ]);
            }
            link.execute(&replace, &values).await?;
        }
        link.commit().await?;
        link.give_back();
        Ok(())
    }

    /// Forgets the pieces of files that are done, or are to be read anew.
    pub async fn forget_pieces(&self, run: RunId, files: &[Key]) -> Result<(), Error> {
        again(|| self.try_forget_pieces(run, files)).await
    }

    async fn try_forget_pieces(&self, run: RunId, files: &[Key]) -> Result<(), Error> {
        let mut link = self.begin().await?;
        for files in files.chunks(self.view.dialect.named_rows()) {
            let delete = format!(
                "DELETE FROM orrery_pieces WHERE fs = ? AND run = ? AND hash IN ({})",
                list("?", files.len())
            );
            let mut values = values![self.view.fs, run].to_vec();
            values.extend(files.iter().map(|key| Value::from(key.as_bytes())));
            link.execute(&delete, &values).await?;
        }
        link.commit().await?;
        link.give_back();
        Ok(())
    }
}

impl View {
    /// The pieces that a run has kept.
    pub async fn pieces(&self, run: &Run) -> Result<Vec<(Key, PieceSum)>, Error> {
        let select = format!("SELECT {COLUMNS} FROM orrery_pieces WHERE fs = ? AND run = ?");
        let mut link = self.links.lend().await?;
        let pieces = link
            .fetch_as(&select, &values![self.fs, run.id], piece)
            .await?;
        link.give_back();
        Ok(pieces)
    }
}

fn piece(mut row: Row) -> Result<(Key, PieceSum), Error> {
    let key = row.key()?;
    let sum = PieceSum {
        span: Span {
            offset: row.int()?.cast_unsigned(),
            length: row.int()?.cast_unsigned(),
        },
        size: row.int()?.cast_unsigned(),
        ctime: row.int()?,
        node: row
            .bytes()?
            .try_into()
            .map_err(|_| Error::Damaged("a piece".into()))?,
    };
    Ok((key, sum))
}
