//! The chart and the kustomize tree as the real tools render them. In: values and folders. Out: objects.
//! Starts helm, kubectl and their like.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Output, Stdio},
    string::FromUtf8Error,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use testbed::tools;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use crate::operator::{NAMESPACE, repository};

const DEADLINE: Duration = Duration::from_mins(3);

/// Objects by kind, namespace and name.
pub type Objects = BTreeMap<String, Value>;

/// What a program said, and whether it succeeded.
#[derive(Debug)]
pub struct Said {
    /// Whether it succeeded.
    pub well: bool,
    /// Its standard output.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Said {
    /// The output of a program that succeeded.
    pub fn ok(self) -> Result<String> {
        if !self.well {
            bail!("{}{}", self.stdout, self.stderr);
        }
        Ok(self.stdout)
    }
}

impl TryFrom<Output> for Said {
    type Error = FromUtf8Error;

    fn try_from(output: Output) -> Result<Self, FromUtf8Error> {
        Ok(Self {
            well: output.status.success(),
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }
}

/// Runs a program in the repository.
pub async fn run(program: &Path, args: &[&str]) -> Result<Said> {
    run_with(program, args, "").await
}

/// Runs a program in the repository with this input.
pub async fn run_with(program: &Path, args: &[&str], input: &str) -> Result<Said> {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(repository())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let running = async {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read its input may have ended already.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(DEADLINE, running).await;
    let output = output.with_context(|| format!("{} took too long", program.display()))??;
    Ok(output.try_into()?)
}

/// `helm template` of our chart with more arguments; the image is not given.
pub async fn template(args: &[&str]) -> Result<Said> {
    let common = [
        "template",
        "orrery",
        "charts/orrery",
        "--namespace",
        NAMESPACE,
    ];
    run(&tools::helm().await?, &[&common, args].concat()).await
}

/// The objects of our chart with more arguments.
pub async fn chart(args: &[&str]) -> Result<Objects> {
    let image = ["--set", "image.repository=orrery"];
    objects(&template(&[&image, args].concat()).await?.ok()?)
}

/// What `kubectl kustomize` makes of a folder.
pub async fn kustomize(folder: &str) -> Result<String> {
    let kubectl = tools::binary("kubectl").await?;
    run(&kubectl, &["kustomize", folder]).await?.ok()
}

/// The objects of a rendered text.
pub fn objects(text: &str) -> Result<Objects> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let mut objects = Objects::new();
    for document in documents.into_iter().filter(|value| !value.is_null()) {
        let part = |pointer| document.pointer(pointer).and_then(Value::as_str);
        let name = part("/metadata/name").context("an object without a name")?;
        let kind = part("/kind").context("an object without a kind")?;
        let key = format!(
            "{kind} {}/{name}",
            part("/metadata/namespace").unwrap_or_default()
        );
        if objects.insert(key.clone(), document.clone()).is_some() {
            bail!("{key} is rendered twice");
        }
    }
    Ok(objects)
}
