//! Claims about what this repository shows to users: the samples and the examples in the pages can be applied.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::place::{Place, repository};

const PAGES: [&str; 3] = [
    "README.md",
    "docs/checksumrun.md",
    "docs/checksumschedule.md",
];

#[tokio::test]
async fn every_sample_applies() -> Result<()> {
    let place = Place::new("samples").await?;
    for file in samples()? {
        applies(&place, &file, &fs::read_to_string(&file)?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_samples_apply_together() -> Result<()> {
    let place = Place::new("samples").await?;
    let folder = format!("--kustomize={}", samples_folder().display());
    let output = place.kubectl(&["apply", &folder]).await?;
    ensure!(output.stderr.is_empty(), "{}", output.stderr);
    let said = output.ok()?;
    let ours = said.lines().filter(|line| line.contains(".orrery.dev/"));
    ensure!(ours.count() == samples()?.len(), "{said}");
    Ok(())
}

#[tokio::test]
async fn every_example_in_the_pages_applies() -> Result<()> {
    let place = Place::new("pages").await?;
    for page in PAGES {
        let text = fs::read_to_string(repository(page))?;
        let examples = blocks(&text, "yaml");
        ensure!(!examples.is_empty(), "{page} has no example");
        for example in examples {
            applies(&place, Path::new(page), &example).await?;
        }
    }
    Ok(())
}

async fn applies(place: &Place, from: &Path, yaml: &str) -> Result<()> {
    for flags in [&["--dry-run=server"][..], &[]] {
        let args = [&["apply", "--filename=-"], flags].concat();
        let output = place.kubectl_stdin(&args, yaml).await?;
        let text = || format!("{} with {flags:?}\n{yaml}", from.display());
        ensure!(output.stderr.is_empty(), "{}\n{}", output.stderr, text());
        output.ok().with_context(text)?;
    }
    Ok(())
}

fn samples_folder() -> PathBuf {
    repository("config/samples")
}

/// The files with samples: all but the list of them.
fn samples() -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(samples_folder())?.map(|entry| entry.map(|entry| entry.path()));
    let mut files: Vec<PathBuf> = files.collect::<Result<_, _>>()?;
    files.retain(|file| !file.ends_with("kustomization.yaml"));
    files.sort();
    ensure!(files.len() == crds::definition::all().len(), "{files:?}");
    Ok(files)
}

/// The fenced blocks of a page that are in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    let fence = format!("```{language}");
    while lines.by_ref().any(|line| line == fence) {
        let inside = lines.by_ref().take_while(|line| *line != "```");
        blocks.push(inside.collect::<Vec<_>>().join("\n"));
    }
    blocks
}
