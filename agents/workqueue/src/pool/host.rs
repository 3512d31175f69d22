//! In: nothing. Out: what this machine is called; in a pod that is the name of the pod.
//! Touches: asks the kernel.

/// Nothing where the kernel does not tell: only people look at it.
pub(super) fn name() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname");
    told.map_or_else(|_| String::new(), |name| name.trim_end().into())
}
