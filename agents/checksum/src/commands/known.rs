//! What a store knows. In: arguments. Out: damage, problems, runs and checksums, as text, and an exit code. Touches: reads the
//! store, writes to standard output.

use std::io::{self, Write};

use super::{ALL, Error, stores};
use crate::algorithm::Algorithm;
use crate::args::{Format, Report};
use crate::report;
use crate::store::{Run, View};

/// Rows that are asked for and printed at once.
const PAGE: u32 = 1000;

pub(super) async fn run(args: &Report) -> Result<u8, Error> {
    let view = View::open(&stores::of(&args.store)?).await?;
    match args.format {
        Format::Text => report_text(&view, args.all).await?,
        Format::Json => report_json(&view, args.all).await?,
        Format::Csv => {
            let mut text = report::CSV_HEAD.to_owned();
            text.extend(
                view.warnings(args.all, ALL)
                    .await?
                    .iter()
                    .map(report::warning_csv),
            );
            io::stdout().write_all(text.as_bytes())?;
        }
        Format::Manifest => return manifest(&view).await,
    }
    // What somebody has taken note of is told, but no news.
    Ok(u8::from(view.open_warnings().await? > 0))
}

async fn report_text(view: &View, all: bool) -> Result<(), Error> {
    let warnings = view.warnings(all, ALL).await?;
    let mut text = report::warnings_text(&warnings);
    for (n, run) in view.runs(10).await?.iter().enumerate() {
        if n == 0 {
            text += &problems_text(view, run).await?;
        }
        text += &report::run_text(run);
    }
    Ok(io::stdout().write_all(text.as_bytes())?)
}

async fn report_json(view: &View, all: bool) -> Result<(), Error> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for warning in view.warnings(all, ALL).await? {
        write!(out, "{}", report::warning_json(&warning))?;
    }
    for (n, run) in view.runs(u32::MAX).await?.iter().enumerate() {
        if n == 0 {
            problems_json(view, run, &mut out).await?;
        }
        write!(out, "{}", report::run_json(run))?;
    }
    Ok(out.flush()?)
}

pub(super) async fn problems_text(view: &View, run: &Run) -> Result<String, Error> {
    let first = view.problems(run.id, report::TOLD).await?;
    Ok(report::problems_text(&first, run))
}

/// Some at a time: of a volume that is gone there are as many as files.
pub(super) async fn problems_json(
    view: &View,
    run: &Run,
    out: &mut impl Write,
) -> Result<(), Error> {
    let mut after = None;
    loop {
        let page = view.problems_after(run.id, after, PAGE).await?;
        let Some((last, _)) = page.last() else {
            return Ok(());
        };
        after = Some(*last);
        for (_, problem) in &page {
            write!(out, "{}", report::problem_json(problem))?;
        }
    }
}

/// In the algorithm of the last run; what has another one is counted, because the tool that checks it would refuse it.
async fn manifest(view: &View) -> Result<u8, Error> {
    let runs = view.runs(1).await?;
    let algorithm = runs
        .first()
        .map(|run| run.what.algorithm)
        .unwrap_or_default();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let (mut after, mut left_out, mut odd) = (None, 0, 0);
    loop {
        let page = view.checksums(after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.key);
        for checksum in &page {
            match report::manifest_line(checksum, algorithm) {
                Some(line) => {
                    out.write_all(&line)?;
                    odd += u64::from(str::from_utf8(&line).is_err());
                }
                None => left_out += 1,
            }
        }
    }
    out.flush()?;
    if odd > 0 && algorithm == Algorithm::Blake3 {
        eprintln!("{odd} names are no UTF-8: b3sum --check ends at the first of them");
    }
    if left_out > 0 {
        eprintln!("{left_out} files have no {algorithm} checksum yet, and are left out");
    }
    Ok(if left_out > 0 { 2 } else { 0 })
}
