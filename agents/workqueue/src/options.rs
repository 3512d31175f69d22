//! In: where Redis is and who we are. Out: what the driver needs to connect, and nothing secret in any log.
//! Pure.

use std::fmt;
use std::time::Duration;

use redis::{ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use crate::Error;

/// Where Redis is, and how to get in.
#[derive(Clone)]
pub struct Options {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The user of an access control list; without one the password is that of the default user.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// Which of the numbered databases.
    pub database: i64,
    /// Encrypts, if given.
    pub tls: Option<Tls>,
    /// How long a connection may take, authentication included.
    pub connect_timeout: Duration,
    /// How long one answer may take.
    pub response_timeout: Duration,
}

/// How to know the server, and how it knows us.
#[derive(Clone, Default)]
pub struct Tls {
    /// Certificates of authorities, PEM; without any, those of the system.
    pub authorities: Option<Vec<u8>>,
    /// Our own certificate chain and its key, both PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Options {
    /// Without password and encryption, and with short time-outs.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            username: None,
            password: None,
            database: 0,
            tls: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(3),
        }
    }

    /// Name and password are sent by ourselves: the driver hides why they are refused.
    pub(crate) fn driver(&self) -> Result<redis::Client, Error> {
        let Some(tls) = &self.tls else {
            let address = ConnectionAddr::Tcp(self.host.clone(), self.port);
            return Ok(redis::Client::open(anonymous(address)?)?);
        };
        let address = ConnectionAddr::TcpTls {
            host: self.host.clone(),
            port: self.port,
            insecure: false,
            tls_params: None,
        };
        let client_tls = tls.identity.clone().map(|(chain, key)| ClientTlsConfig {
            client_cert: chain,
            client_key: key,
        });
        let certificates = TlsCertificates {
            client_tls,
            root_cert: tls.authorities.clone(),
        };
        redis::Client::build_with_tls(anonymous(address)?, certificates)
            .map_err(|error| Error::invalid(format!("the certificates cannot be used: {error}")))
    }
}

fn anonymous(address: ConnectionAddr) -> Result<ConnectionInfo, Error> {
    let info = address.into_connection_info()?;
    let quiet = info.redis_settings().clone().set_skip_set_lib_name();
    Ok(info.set_redis_settings(quiet))
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            port,
            username,
            password,
            database,
            tls,
            connect_timeout,
            response_timeout,
        } = self;
        f.debug_struct("Options")
            .field("host", host)
            .field("port", port)
            .field("username", username)
            .field("password", &password.as_ref().map(|_| "…"))
            .field("database", database)
            .field("tls", tls)
            .field("connect_timeout", connect_timeout)
            .field("response_timeout", response_timeout)
            .finish()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.as_ref().map(Vec::len))
            .field("identity", &self.identity.as_ref().map(|_| "…"))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let mut options = Options::new("redis", 6379);
        options.password = Some("hunter2".into());
        options.tls = Some(Tls {
            authorities: None,
            identity: Some((b"chain".to_vec(), b"sesame".to_vec())),
        });
        let shown = format!("{options:?}");
        assert!(shown.contains("redis"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!shown.contains("115"), "no bytes of the key: {shown}");
    }

    #[test]
    fn certificates_that_are_none_are_refused_at_once() {
        let mut options = Options::new("redis", 6379);
        let authorities = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        options.tls = Some(Tls {
            authorities: Some(authorities.into()),
            identity: None,
        });
        let refused = options.driver().map(|_| ());
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
}
