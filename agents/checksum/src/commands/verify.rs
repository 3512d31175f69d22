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
use crate::report::{self, Compared};
use crate::store::View;
use crate::verify::{self, Finding};

/// Compares, and tells what is different. Where nobody hears it, it ends.
pub(super) async fn run(args: &Verify) -> Result<u8, Error> {
    let view = View::open(&stores::of(&args.store)?).await?;
    let shared = Arc::new(Shared::new(None, Instant::now()));
    let mut compared = Compared::default();
    let tell = |path: &RelativePath, finding: Finding| -> Result<(), Error> {
        match finding {
            Finding::Same => compared.same += 1,
            Finding::Different { .. } => compared.different += 1,
            Finding::Unknown(_) => compared.unknown += 1,
        }
        let text = match args.output {
            Output::Text => report::finding_text(path, &finding),
            Output::Json => report::finding_json(path, &finding),
        };
        Ok(io::stdout().write_all(text.as_bytes())?)
    };
    let verifying = verify::verify(&args.path, args.medium, &view, &shared, tell);
    stopped_by_signals(verifying, &shared).await?;
    let text = match args.output {
        Output::Text => report::compared_text(compared),
        Output::Json => report::compared_json(compared),
    };
    io::stdout().write_all(text.as_bytes())?;
    let Compared {
        same,
        different,
        unknown,
    } = compared;
    if same + different + unknown == 0 {
        eprintln!("nothing was compared: the store has no files on record");
    }
    Ok(match (different, unknown) {
        (0, 0) if same > 0 => 0,
        (0, _) => 2,
        _ => 1,
    })
}
