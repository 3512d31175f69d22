//! In: nothing. Out: the identifiers of jobs, pools and workers.
//! Touches: the random numbers of this thread.

/// 24 hexadecimal digits that nobody else has.
pub(crate) fn fresh() -> String {
    let (high, low) = (fastrand::u64(..), fastrand::u32(..));
    format!("{high:016x}{low:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_24_hexadecimal_digits_and_differ() {
        let (one, other) = (fresh(), fresh());
        assert_eq!(one.len(), 24);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
        assert_ne!(one, other);
    }
}
