//! Errors of this crate: a gateway that does not start. What a request meets is the store's.

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It cannot speak to the nodes.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// It cannot serve datasets.
    #[error(transparent)]
    Datasets(Box<dyn std::error::Error + Send + Sync>),
}
