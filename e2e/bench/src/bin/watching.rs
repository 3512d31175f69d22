//! The process whose memory is told as "watched". In: a kubeconfig. Out: nothing; it watches until it is ended.

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    runtime::tls::install_crypto_provider();
    bench::operator_core::watchers::watch().await
}
