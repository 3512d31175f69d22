//! Where a store is. In: what the user said, and the folder. Out: a path. Touches: makes the folder it is in.

use std::env;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::args::StoreOf;
use crate::path::RelativePath;
use crate::store::{self, Location, Mysql, Password, Tls};

/// Why there is no place for a store.
#[derive(Debug, Error)]
pub enum Error {
    /// The folder.
    #[error("failed to find {path}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder of the store.
    #[error("failed to make {path}, where the store is to be: --store names another place")]
    Parent {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Patterns are text.
    #[error(
        "{} is in the folder that is read, under a name that is no text, and could not be left out: --store names another place",
        RelativePath::new(.0.as_os_str().as_bytes())
    )]
    Inside(PathBuf),
    /// The user has no home.
    #[error(
        "neither XDG_STATE_HOME nor HOME is set: say with --store where checksums are to be kept"
    )]
    NoHome,
    /// Not a server.
    #[error("{0} is not HOST:PORT/DATABASE")]
    Server(String),
    /// A server holds several.
    #[error("--mysql needs --file-system: a database holds several")]
    NoFileSystem,
    /// Who logs in.
    #[error("{0} is not set: who logs in is said in the environment")]
    Environment(String),
    /// There is none yet.
    #[error(transparent)]
    Absent(#[from] store::Error),
}

/// A store for a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) store: PathBuf,
    /// Patterns of its files, when they are in the folder that is read: they change all the time.
    pub(super) inside: Vec<String>,
}

/// The store that is meant.
pub(super) fn of(of: &StoreOf) -> Result<Location, Error> {
    if let Some(server) = &of.mysql {
        return of_server(of, server);
    }
    let path = match (&of.store, &of.folder) {
        (Some(store), _) => store.clone(),
        (None, Some(folder)) => by_default(&canonical(folder)?)?,
        (None, None) => return Err(Error::NoHome),
    };
    Ok(match &of.file_system {
        Some(file_system) => Location::Sqlite {
            path,
            file_system: file_system.clone(),
        },
        None => Location::file(path),
    })
}

fn of_server(of: &StoreOf, address: &str) -> Result<Location, Error> {
    let tls = of.tls_ca.clone().map(|authorities| Tls {
        authorities: Some(authorities),
        identity: None,
    });
    Ok(Location::Mysql {
        server: Mysql {
            tls,
            ..server(address, "ORRERY_STORE")?
        },
        file_system: of.file_system.clone().ok_or(Error::NoFileSystem)?,
    })
}

/// A database. Who logs in is in the environment: a command line is for all to see.
pub(super) fn server(address: &str, variables: &str) -> Result<Mysql, Error> {
    let wrong = || Error::Server(address.into());
    let (host, database) = address.split_once('/').ok_or_else(wrong)?;
    let (host, port) = host.rsplit_once(':').ok_or_else(wrong)?;
    let variable = |name: &str| {
        let name = format!("{variables}_{name}");
        env::var(&name).map_err(|_| Error::Environment(name))
    };
    Ok(Mysql {
        host: host.into(),
        port: port.parse().map_err(|_| wrong())?,
        database: database.into(),
        username: variable("USERNAME")?,
        password: Password(variable("PASSWORD")?),
        tls: None,
    })
}

/// The same, which may be new: there is a folder for it.
pub(super) fn new(of_what: &StoreOf) -> Result<Location, Error> {
    let location = of(of_what)?;
    if let Location::Sqlite { path, .. } = &location {
        with_parent(path)?;
    }
    Ok(location)
}

/// The same, if it is there.
pub(super) fn existing(store: &StoreOf) -> Result<Location, Error> {
    let location = of(store)?;
    match &location {
        Location::Sqlite { path, .. } if !path.exists() => {
            Err(store::Error::Absent(path.clone()).into())
        }
        Location::Sqlite { .. } | Location::Mysql { .. } => Ok(location),
    }
}

/// Where a run over this folder keeps its checksums.
pub(super) fn for_run(folder: &Path, store: Option<&Path>) -> Result<Place, Error> {
    let folder = canonical(folder)?;
    let store = match store {
        Some(store) => store.into(),
        None => by_default(&folder)?,
    };
    let parent = with_parent(&store)?;
    Ok(Place {
        inside: inside(&folder, &parent, &store)?,
        store,
    })
}

/// Makes the folder that a store is to be in; returns it.
fn with_parent(store: &Path) -> Result<PathBuf, Error> {
    let parent = match store.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let made = fs::create_dir_all(parent).and_then(|()| parent.canonicalize());
    made.map_err(|source| Error::Parent {
        path: parent.into(),
        source,
    })
}

fn inside(folder: &Path, parent: &Path, store: &Path) -> Result<Vec<String>, Error> {
    let (Ok(below), Some(name)) = (parent.strip_prefix(folder), store.file_name()) else {
        return Ok(Vec::new());
    };
    let below = below.join(name);
    let below = below.to_str().ok_or_else(|| Error::Inside(store.into()))?;
    // Anchored by the slash.
    let path = globset::escape(&format!("/{below}"));
    let suffixes = ["", ".lock", ".listing", "-wal", "-shm", "-journal"];
    Ok(suffixes.map(|suffix| format!("{path}{suffix}")).into())
}

fn canonical(folder: &Path) -> Result<PathBuf, Error> {
    folder.canonicalize().map_err(|source| Error::Folder {
        path: folder.into(),
        source,
    })
}

/// Named by the folder's path, so that the next run over it finds it.
fn by_default(folder: &Path) -> Result<PathBuf, Error> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
    let state = state.filter(|it| it.is_absolute()).or_else(home);
    let name = blake3::hash(folder.as_os_str().as_bytes()).to_hex();
    let state = state.ok_or(Error::NoHome)?.join("orrery-checksum");
    Ok(state.join(format!("{}.sqlite", &name[..16])))
}
