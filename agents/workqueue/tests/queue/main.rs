//! Claims about the protocol, shown on a real Redis and, in `gocraft`, with real Go programs.

mod fencing;
mod gocraft;
mod inspecting;
mod outage;
mod reaping;
mod serving;
mod support;
