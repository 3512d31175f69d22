//! Asks a running operator whether it is ready. In: an address. Out: what it says. Touches the network.

use std::io::Write;

use http::Uri;
use runtime::http::{Client, Limits};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Prints the answer; an error unless it is 200.
pub async fn probe(url: &Uri) -> Result<(), Error> {
    let answer = Client::plain(Limits::default()).get(url).await?;
    let said = String::from_utf8_lossy(&answer.body);
    writeln!(std::io::stdout(), "{}", said.trim_end())?;
    if !answer.status.is_success() {
        return Err(format!("{url} answers {}", answer.status).into());
    }
    Ok(())
}
