//! Claims about networks of namespaces: hosts reach each other until they are cut apart, and nothing is left.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use testbed::network::Network;
use testbed::process::{Launch, Process};
use testbed::wait::eventually;
use tokio::net::TcpStream;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);
const PORT: u16 = 7;

/// Answers every connection to the port with one line.
const SERVER: &str = "import socketserver,sys
class H(socketserver.BaseRequestHandler):
    def handle(self): self.request.sendall(b'hello\\n')
socketserver.ThreadingTCPServer((sys.argv[1], 7), H).serve_forever()";

const CLIENT: &str = "import socket,sys
print(socket.create_connection((sys.argv[1], 7), timeout=1).recv(6).decode())";

#[tokio::test]
async fn hosts_can_be_cut_apart_and_joined_again() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let network = Network::create(3, &folder.path().join("log")).await?;
    let _servers = [
        serve(&network, 0, folder.path())?,
        serve(&network, 1, folder.path())?,
        serve(&network, 2, folder.path())?,
    ];
    for n in 0..3 {
        eventually("a server", SOON, async || {
            Ok(machine_reaches(&network, n).await.then_some(()))
        })
        .await?;
    }
    ensure!(
        reaches(&network, 0, 2, folder.path()).await?,
        "before the cut"
    );

    network.cut(&[0, 1], &[2]).await?;
    ensure!(!reaches(&network, 0, 2, folder.path()).await?);
    ensure!(!reaches(&network, 2, 1, folder.path()).await?);
    ensure!(reaches(&network, 0, 1, folder.path()).await?, "same side");
    ensure!(
        machine_reaches(&network, 2).await,
        "the test still reaches it"
    );

    network.heal().await?;
    ensure!(reaches(&network, 2, 0, folder.path()).await?, "healed");

    network.isolate(1).await?;
    ensure!(!machine_reaches(&network, 1).await);
    ensure!(!reaches(&network, 0, 1, folder.path()).await?);
    network.heal().await?;
    ensure!(machine_reaches(&network, 1).await);
    Ok(())
}

#[tokio::test]
async fn a_network_goes_with_its_handle() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let network = Network::create(1, &folder.path().join("log")).await?;
    let name = interface(network.address(0));
    ensure!(Path::new("/sys/class/net").join(&name).exists());
    drop(network);
    // The kernel takes a namespace down in its own time.
    eventually("the interface to go", SOON, async || {
        Ok((!Path::new("/sys/class/net").join(&name).exists()).then_some(()))
    })
    .await
}

fn interface(address: Ipv4Addr) -> String {
    let [_, second, third, _] = address.octets();
    format!("orrery-{second}-{third}")
}

fn serve(network: &Network, n: usize, folder: &Path) -> Result<Process> {
    Launch::new("server", "python3", folder.join("servers.log"))
        .wrapped(network.enter(n)?)
        .args(["-c", SERVER, &network.address(n).to_string()])
        .spawn()
}

async fn reaches(network: &Network, from: usize, to: usize, folder: &Path) -> Result<bool> {
    let client = Launch::new("client", "python3", folder.join("clients.log"))
        .wrapped(network.enter(from)?)
        .args(["-c", CLIENT, &network.address(to).to_string()])
        .spawn()?;
    Ok(client.wait_exit(SOON).await?.success())
}

async fn machine_reaches(network: &Network, n: usize) -> bool {
    let connected = TcpStream::connect((network.address(n), PORT));
    matches!(timeout(Duration::from_secs(1), connected).await, Ok(Ok(_)))
}
