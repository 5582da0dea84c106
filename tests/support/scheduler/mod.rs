//! A deterministic scheduler. It runs the threads of a test one at a time, in an interleaving that
//! a seed chooses.
//!
//! The threads of the library and its dependencies block in only a few libc functions: `syscall`
//! for futexes, `pthread_join`, sleeps and `sched_yield`. The test executable defines these
//! functions itself. The linker prefers its definitions, so the library is tested unmodified. While
//! a schedule is running, only the thread that has the baton runs. A thread that blocks passes the
//! baton on. It may also do so at other scheduling points: whenever it wakes or starts a thread,
//! yields, reads the clock, or allocates or frees memory ([`Allocator`]). Time is virtual. The
//! clock advances with every scheduling point except branches. It jumps to the next deadline when
//! every thread waits, and at random. Threads outside a schedule use the real libc functions.
//!
//! If the library is compiled with `tests/support/branches`, each of its branches is a scheduling
//! point as well.
//!
//! 1. `schedule`: [`Schedule`](schedule::Schedule), the choices of one seed.
//! 2. `baton`: the running schedule, and the thread that has the baton.
//! 3. `functions`: the libc functions, and [`Allocator`].
//! 4. `explore`: runs schedules in child processes.
//!
//! [`explore()`] runs several schedules in a process, one after the other. Global state that
//! earlier schedules initialized is visible to later schedules. To reproduce a schedule, also run
//! the preceding seeds in the same process.
#![allow(unsafe_code)] // replaces libc functions
#![allow(dead_code, unreachable_pub, unused_imports)] // not every test uses all of it

mod baton;
mod explore;
mod functions;
mod schedule;

pub use explore::{Explored, are_selected, explore, running_threads, seeds};
pub use functions::Allocator;
