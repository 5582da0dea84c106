//! Runs the threads of a test one at a time, in an order that a seed chooses.
//!
//! The threads of the library and of its crates block in few functions of libc: `syscall` for
//! futexes, `pthread_join`, sleeps and `sched_yield`. The executable of the test defines these
//! itself, so the linker prefers them, and the library is tested as it is. While a schedule runs,
//! its threads hand a baton to each other. A thread hands it on when it blocks, and may have to
//! whenever it wakes, starts or yields to others, reads the clock or allocates ([`Allocator`]).
//! Time is virtual: it passes with every such step, and jumps to the next deadline when every thread
//! waits. Threads that were not started by a schedule keep the functions of libc.
//!
//! If the library is compiled by `branches`, each of its branches is a step, too.
//!
//! 1. `schedule`: [`Schedule`](schedule::Schedule), the choices of one seed.
//! 2. `baton`: the one schedule that runs, and the thread that has the baton.
//! 3. `functions`: the functions of libc, and [`Allocator`].
//! 4. `explore`: runs schedules in processes.
//!
//! [`explore()`] runs several schedules in a process, one after the other. Later ones find what
//! the library has initialized, so a seed is repeated together with those before it.
#![allow(unsafe_code)] // it replaces functions of libc
#![allow(dead_code, unreachable_pub, unused_imports)] // each test uses its part

mod baton;
mod explore;
mod functions;
mod schedule;

pub use explore::{Explored, are_asked, explore, running, seeds};
pub use functions::Allocator;
