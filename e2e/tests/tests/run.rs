//! `make run` and `make stop` where they cannot do their work: one line that says what to do, and nothing is begun.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use e2e::{
    operator::repository,
    render::{self, Said},
};
use testbed::{Kubernetes, Options, tools};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    process::Command,
    time::timeout,
};

const DEADLINE: Duration = Duration::from_secs(50);

/// `make`, with a folder of its own for what it builds and for what runs in the background.
struct Make {
    target: tempfile::TempDir,
    kubeconfig: String,
}

impl Make {
    fn new() -> Result<Self> {
        Ok(Self {
            target: tempfile::tempdir()?,
            kubeconfig: "/dev/null".into(),
        })
    }

    /// With a kubeconfig for the server at this address.
    fn with_server(address: &str) -> Result<Self> {
        let mut make = Self::new()?;
        let path = make.target.path().join("kubeconfig");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: it,\
              contexts: [{{name: it, context: {{cluster: it, user: it}}}}],\
              clusters: [{{name: it, cluster: {{server: 'http://{address}'}}}}],\
              users: [{{name: it, user: {{}}}}]}}"
        );
        fs::write(&path, text)?;
        make.kubeconfig = path.to_string_lossy().into_owned();
        Ok(make)
    }

    /// As if an earlier run had left this behind.
    fn with_earlier_run(process: &str) -> Result<Self> {
        let make = Self::new()?;
        let state = make.target.path().join("run");
        fs::create_dir(&state)?;
        fs::write(state.join("process"), format!("{process}\n"))?;
        Ok(make)
    }

    async fn run(&self, args: &[&str]) -> Result<Said> {
        self.wrapped("make", args).await
    }

    async fn wrapped(&self, program: &str, args: &[&str]) -> Result<Said> {
        let kubernetes = tools::binary("kubectl").await?;
        let helm = tools::helm().await?;
        let path = [folder(&kubernetes)?, folder(&helm)?, std::env::var("PATH")?].join(":");
        let output = Command::new(program)
            .args(args)
            .current_dir(repository())
            .env("PATH", path)
            .env("CARGO_TARGET_DIR", self.target.path())
            .env("KUBECONFIG", &self.kubeconfig)
            // A user's make has no other above it, as this one may have.
            .env_remove("MAKELEVEL")
            .env_remove("MAKEFLAGS")
            .kill_on_drop(true)
            .output();
        let output = timeout(DEADLINE, output).await?.context("make")?;
        Ok(output.try_into()?)
    }

    /// As somebody has done it before.
    async fn install_definitions(&self, release: &str, namespace: &str) -> Result<()> {
        let install = ["install", release, "charts/orrery-crds"];
        let to = ["--create-namespace", "--namespace", namespace];
        let cluster = ["--kubeconfig", &self.kubeconfig];
        let args = [&install[..], &to, &cluster].concat();
        render::run(&tools::helm().await?, &args).await?.ok()?;
        Ok(())
    }

    /// A folder with both programs, one of which gets no answer to this question.
    async fn silent(&self, program: &str, question: &str) -> Result<String> {
        let place = tempfile::tempdir_in(self.target.path())?.keep();
        for real in [tools::binary("kubectl").await?, tools::helm().await?] {
            let name = real.file_name().context("a program without a name")?;
            if name != program {
                symlink(&real, place.join(name))?;
                continue;
            }
            let script = format!(
                "#!/bin/sh\ncase \" $* \" in *\" {question} \"*) echo no answer >&2; exit 1 ;; esac\nexec {} \"$@\"\n",
                real.display()
            );
            fs::write(place.join(name), script)?;
            fs::set_permissions(place.join(name), Permissions::from_mode(0o755))?;
        }
        Ok(place.to_string_lossy().into_owned())
    }

    /// Fails, and says nothing but this one line and make's own.
    async fn refuses(&self, args: &[&str], expected: &str) -> Result<()> {
        says_only(&self.run(args).await?, expected)
    }
}

fn folder(program: &Path) -> Result<String> {
    let folder = program.parent().context("a program without a folder")?;
    Ok(folder.to_string_lossy().into_owned())
}

fn says_only(said: &Said, expected: &str) -> Result<()> {
    ensure!(!said.well, "it worked: {said:?}");
    let lines = said.stderr.lines();
    let lines: Vec<_> = lines.filter(|it| !it.starts_with("make:")).collect();
    ensure!(lines.len() == 1 && lines[0].contains(expected), "{said:?}");
    Ok(())
}

#[tokio::test]
async fn an_unknown_cluster_is_refused() -> Result<()> {
    let expected = "CLUSTER=other is neither private (the default) nor current";
    Make::new()?
        .refuses(&["run", "CLUSTER=other"], expected)
        .await
}

#[tokio::test]
async fn a_cluster_of_the_user_needs_an_image_with_a_registry_and_a_tag() -> Result<()> {
    let make = Make::new()?;
    let run = ["run", "CLUSTER=current"];
    make.refuses(&run, "needs IMAGE").await?;
    for image in ["orrery", "orrery:1", "registry:5000/orrery"] {
        let image = format!("IMAGE={image}");
        make.refuses(&[&run[..], &[&image]].concat(), "is not registry/name:tag")
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_added_is_refused() -> Result<()> {
    let make = Make::new()?;
    let unknown = "asks for mysql, but there is only: cassandra mariadb redis";
    make.refuses(&["run", "WITH=cassandra,mysql"], unknown)
        .await?;
    for with in ["WITH=cassandra", "WITH=mariadb,redis"] {
        let elsewhere = ["run", with, "CLUSTER=current", "IMAGE=a/b:c"];
        make.refuses(&elsewhere, "needs the private cluster")
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_wrong_kubeconfig_is_named() -> Result<()> {
    let run = ["run", "CLUSTER=current", "IMAGE=localhost/orrery:dev"];
    Make::new()?.refuses(&run, "check KUBECONFIG").await?;
    let nobody = "127.0.0.1:1";
    let expected = "no Kubernetes answers at http://127.0.0.1:1";
    Make::with_server(nobody)?.refuses(&run, expected).await
}

#[tokio::test]
async fn a_cluster_that_is_too_old_is_refused() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let make = Make::with_server(&listener.local_addr()?.to_string())?;
    let run = ["run", "CLUSTER=current", "IMAGE=localhost/orrery:dev"];
    let expected = "has Kubernetes 1.32.4, but 1.33 or newer is needed";
    tokio::select! {
        refused = make.refuses(&run, expected) => refused,
        served = old_cluster(listener) => served,
    }
}

#[tokio::test]
async fn definitions_that_helm_did_not_install_are_left_alone() -> Result<()> {
    let cluster = testbed::kubernetes().await?;
    let mut make = Make::new()?;
    make.kubeconfig = cluster.kubeconfig().display().to_string();
    let run = ["run", "CLUSTER=current", "IMAGE=localhost/orrery:dev"];
    make.refuses(&run, "Orrery's definitions already, but not from Helm")
        .await
}

#[tokio::test]
async fn definitions_of_another_release_are_left_to_it() -> Result<()> {
    let cluster = Kubernetes::start(Options::default().named("run-theirs")).await?;
    let mut make = Make::new()?;
    make.kubeconfig = cluster.kubeconfig().display().to_string();
    make.install_definitions("theirs", "elsewhere").await?;
    let run = ["run", "CLUSTER=current", "IMAGE=localhost/orrery:dev"];
    let expected = "the Helm release elsewhere/theirs has Orrery's definitions already";
    make.refuses(&run, expected).await?;
    cluster.shutdown().await
}

#[tokio::test]
async fn what_the_cluster_does_not_tell_is_not_taken_for_absent() -> Result<()> {
    let cluster = Kubernetes::start(Options::default().named("run-silent")).await?;
    let mut make = Make::new()?;
    make.kubeconfig = cluster.kubeconfig().display().to_string();
    make.install_definitions("orrery-crds", "orrery-system")
        .await?;

    let run = ["run", "CLUSTER=current", "IMAGE=localhost/orrery:dev"];
    for (program, question, expected) in [
        (
            "kubectl",
            "crd/checksumruns.orrery.dev",
            "does not say whether it has crd/",
        ),
        (
            "helm",
            "status",
            "does not say whether the release orrery is there",
        ),
    ] {
        let folder = make.silent(program, question).await?;
        let path = format!("PATH={folder}:{}", std::env::var("PATH")?);
        let said = make
            .wrapped("env", &[&[&*path, "make"][..], &run].concat())
            .await?;
        ensure!(!said.well && said.stderr.contains(expected), "{said:?}");
        ensure!(!said.stderr.contains("taking back"), "{said:?}");
    }
    let definitions = ["get", "crd", "checksumruns.orrery.dev"];
    cluster.kubectl(&definitions).await?.ok()?;
    cluster.shutdown().await
}

/// Tells its version, whatever it is asked.
async fn old_cluster(listener: TcpListener) -> Result<()> {
    let version = r#"{"major": "1", "minor": "32", "gitVersion": "v1.32.4"}"#;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let _ = stream.read(&mut [0; 4096]).await?;
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{version}",
            version.len()
        );
        stream.write_all(answer.as_bytes()).await?;
    }
}

#[tokio::test]
async fn a_private_node_needs_root() -> Result<()> {
    let make = Make::new()?;
    // Nobody, but still allowed to read this repository.
    let run = ["--user", "scripts/run.sh"];
    let said = make.wrapped("unshare", &run).await?;
    says_only(&said, "a private node needs root")
}

#[tokio::test]
async fn nodes_need_root_and_namespaces() -> Result<()> {
    let make = Make::new()?;
    let said = make
        .wrapped("unshare", &["--user", "scripts/e2e.sh"])
        .await?;
    says_only(&said, "nodes need root")?;
    // Root, but as in a container: without the right to make namespaces.
    let without = ["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
    for script in ["scripts/run.sh", "scripts/e2e.sh"] {
        let args = [&without[..], &[script]].concat();
        let said = make.wrapped("setpriv", &args).await?;
        says_only(&said, "this machine allows no new namespaces")?;
    }
    Ok(())
}

#[tokio::test]
async fn an_image_is_for_machines_that_are_known() -> Result<()> {
    let expected = "ARCH is amd64 or arm64, not sparc";
    Make::new()?
        .refuses(&["image", "ARCH=sparc"], expected)
        .await
}

#[tokio::test]
async fn packages_that_are_missing_are_named_to_who_may_not_install_them() -> Result<()> {
    let make = Make::new()?;
    let programs = make.target.path().join("programs");
    fs::create_dir(&programs)?;
    for folder in ["/usr/bin", "/usr/sbin"] {
        for program in fs::read_dir(folder)? {
            let program = program?;
            if program.file_name() != "containerd" {
                // The first of a name counts, as on a path.
                let _ = symlink(program.path(), programs.join(program.file_name()));
            }
        }
    }
    let path = format!("PATH={}", programs.display());
    let prepare = ["--user", "env", &path, "scripts/prepare.sh", "run"];
    let said = make.wrapped("unshare", &prepare).await?;
    says_only(
        &said,
        "missing packages, install them as root: apt-get install",
    )?;
    says_only(&said, " containerd")
}

#[tokio::test]
async fn a_second_run_in_the_background_is_refused() -> Result<()> {
    let own = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<_> = own.split(' ').collect();
    // Names of threads and tests may hold spaces; ours is `run-…`.
    let make = Make::with_earlier_run(&format!("{} {}", fields[0], fields[21]))?;
    make.refuses(&["run", "DETACH=1"], "make stop ends it")
        .await
}

#[tokio::test]
async fn what_a_dead_run_left_is_cleared_away() -> Result<()> {
    // A process of this id is alive, but it is another one.
    let make = Make::with_earlier_run("1 0")?;
    let said = make.run(&["stop"]).await?;
    ensure!(
        said.well && said.stderr.contains("nothing runs in the background"),
        "{said:?}"
    );
    ensure!(!make.target.path().join("run").exists());
    Ok(())
}
