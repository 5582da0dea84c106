//! The extension module of the Python package `warpfeed`. The public interface is
//! `warpfeed/__init__.py`.

mod augment;
mod batch;
mod buffer;
mod core;
mod decoder;
mod dynamic_batcher;
mod either;
mod error;
mod function;
mod gpu;
mod lending;
mod log;
mod option_names;
mod options;
mod order;
mod pack;
mod program;
mod response;
mod source;
mod stats;
mod stored;
#[allow(unsafe_code)]
mod tensor;
#[allow(unsafe_code)]
mod thread_state;
mod traced;
mod value;
mod waiting;
mod wake;

/// The `warpfeed._warpfeed` module. The module does not rely on the GIL: its shared state is
/// immutable, atomic or protected by a mutex. A [`stats::Span`] can be used only on the thread that
/// created it.
#[pyo3::pymodule(gil_used = false)]
mod _warpfeed {
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::core::Core;
    #[pymodule_export]
    use super::decoder::DecoderCore;
    #[pymodule_export]
    use super::dynamic_batcher::DynamicBatcherCore;
    #[pymodule_export]
    use super::function::Function;
    #[pymodule_export]
    use super::log::{drain_log, start_log};
    #[pymodule_export]
    use super::options::options;
    #[pymodule_export]
    use super::pack::{merge, pack, pack_progress, part_from_env};
    #[pymodule_export]
    use super::program::{image_sizes, in_python, labels, rank_from_env, run_program, split, version};
    #[pymodule_export]
    use super::response::PendingResponse;
    #[pymodule_export]
    use super::source::{lerobot_episodes, lerobot_stats};
    #[pymodule_export]
    use super::stats::{Span, report, stats_since, verdict_of};
    #[pymodule_export]
    use super::stored::decode_image;
    #[pymodule_export]
    use super::tensor::Tensor;
    #[pymodule_export]
    use super::waiting::wait_for_calls;
}
