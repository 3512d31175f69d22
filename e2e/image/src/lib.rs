//! Writes container images as OCI archives, and what they are made of, without a container runtime.
//! The same input gives the same bytes.

pub mod layer;
pub mod layout;
pub mod name;
pub mod program;
pub mod sbom;
pub mod shipped;
mod tarball;
pub mod tree;
