//! GPUs of a worker: what is there, what is missing, what is advertised.
//!
//! ```text
//! / (sysfs, /proc, /dev) ─scan─> Facts ─┐
//! NVML, in a child with a deadline ─────┴─ inventory ─> Inventory ─> ladder, selection, tags, exports
//! ```
