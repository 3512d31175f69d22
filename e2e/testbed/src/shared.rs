//! In: the environment. Out: the cluster this test is to use.
//! Touches: attaches to a running cluster, or starts one for this process.

use std::env;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Weak};

use anyhow::{Context, Result};
use tokio::sync::Mutex;

use crate::access::Access;
use crate::kubernetes::{Kubernetes, Options};
use crate::tools;

/// Names the state folder of the cluster `testbed run` has started.
pub const VARIABLE: &str = "ORRERY_TESTBED";

/// The cluster of this process; the tests that use it hold it, and the last one ends it.
static OWN: Mutex<Weak<Kubernetes>> = Mutex::const_new(Weak::new());

/// All of [`Access`] to a cluster that others may be using: there is nothing here to break it with.
#[derive(Clone, Debug)]
pub struct Shared {
    access: Access,
    _owned: Option<Arc<Kubernetes>>,
}

/// The cluster of `testbed run`, if this process runs below it, else one for this process alone.
pub async fn kubernetes() -> Result<Shared> {
    match env::var_os(VARIABLE) {
        Some(folder) => attach(Path::new(&folder)).await,
        None => own().await,
    }
}

/// The definitions of this repository, if there are any yet.
pub fn repository_crds() -> Result<Options> {
    let folder = tools::repository().join("config/crd");
    if !folder.is_dir() {
        return Ok(Options::default());
    }
    Options::default().with_crds_in(&folder)
}

async fn attach(folder: &Path) -> Result<Shared> {
    let access = Access::guest(folder, tools::binary("kubectl").await?)
        .with_context(|| format!("{VARIABLE} is set, but not by a `testbed run` still going on"))?;
    Ok(Shared {
        access,
        _owned: None,
    })
}

async fn own() -> Result<Shared> {
    let mut own = OWN.lock().await;
    let running = match own.upgrade() {
        Some(running) => running,
        None => Arc::new(Kubernetes::start(repository_crds()?).await?.ends_by_drop()),
    };
    *own = Arc::downgrade(&running);
    Ok(Shared {
        access: (**running).clone(),
        _owned: Some(running),
    })
}

impl Deref for Shared {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}
