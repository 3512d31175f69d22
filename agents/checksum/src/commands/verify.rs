#![expect(
    clippy::disallowed_methods,
    reason = "an edge: it reads the clock for everything below it"
)]
//! Another folder beside the checksums on record. In: arguments. Out: a line for each file that is not as it was, and an exit
//! code. Touches: standard output.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Instant;

use super::{Error, stopped_by_signals, stores};
use crate::args::{Output, Verify};
use crate::engine::Shared;
use crate::path::RelativePath;
use crate::store::View;
use crate::verify::{self, Finding};

/// Compares, and tells what is different. Where nobody hears it, it ends.
pub(super) async fn run(args: &Verify) -> Result<u8, Error> {
    let view = View::open(&stores::of(&args.store)?).await?;
    let shared = Arc::new(Shared::new(None, Instant::now()));
    let (mut same, mut different, mut unknown) = (0, 0, 0);
    let tell = |path: &RelativePath, finding: Finding| -> Result<(), Error> {
        match finding {
            Finding::Same => same += 1,
            Finding::Different { expected, actual } => {
                different += 1;
                finding_line(
                    args.output,
                    "different",
                    path,
                    &format!("{expected} on record, {actual} here"),
                )?;
            }
            Finding::Unknown(why) => {
                unknown += 1;
                finding_line(args.output, "unknown", path, &why)?;
            }
        }
        Ok(())
    };
    let verifying = verify::verify(&args.path, args.medium, &view, &shared, tell);
    stopped_by_signals(verifying, &shared).await?;
    let mut out = io::stdout().lock();
    match args.output {
        Output::Text => writeln!(
            out,
            "{same} files are as on record, {different} are not, {unknown} could not be compared"
        )?,
        Output::Json => writeln!(
            out,
            r#"{{"kind":"verify","same":{same},"different":{different},"unknown":{unknown}}}"#
        )?,
    }
    if same + different + unknown == 0 {
        eprintln!("nothing was compared: the store has no files on record");
    }
    Ok(match (different, unknown) {
        (0, 0) if same > 0 => 0,
        (0, _) => 2,
        _ => 1,
    })
}

fn finding_line(output: Output, what: &str, path: &RelativePath, why: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match output {
        Output::Text => writeln!(out, "{what}: {path}\n  {why}"),
        Output::Json => {
            let line = serde_json::json!({"kind": what, "path": path.to_string(), "why": why});
            writeln!(out, "{line}")
        }
    }
}
