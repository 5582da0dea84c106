//! Checks at compile time which public types implement `Send`, `Sync` and `Debug`.

use std::fmt::Debug;

use warpfeed::{batch, decode, field, format, pack, sampler, source, trace, transform};

fn debug<T: Debug + ?Sized>() {}
fn send<T: Send + Debug + ?Sized>() {}
fn both<T: Send + Sync + Debug + ?Sized>() {}

/// Whether `T` is `Sync`, decided at compile time: an inherent constant takes precedence over the
/// trait's constant.
macro_rules! is_sync {
    ($t:ty) => {{
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code)] // only one of the two is used
        trait No {
            const SYNC: bool = false;
        }
        impl<T: ?Sized> No for Probe<T> {}
        #[allow(dead_code)]
        impl<T: Sync + ?Sized> Probe<T> {
            const SYNC: bool = true;
        }
        Probe::<$t>::SYNC
    }};
}

#[test]
fn types_that_users_hold_can_move_to_other_threads() {
    both::<warpfeed::Loader>();
    both::<warpfeed::HostBatch>();
    both::<warpfeed::BatchInfo>();
    both::<warpfeed::Error>();
    both::<warpfeed::ErrorKind>();
    both::<warpfeed::SampleError>();
    both::<warpfeed::MemoryPlan>();
    both::<warpfeed::OnError>();
    both::<warpfeed::Checkpoint>();
    both::<warpfeed::Replay<warpfeed::HostBatch>>();
    both::<warpfeed::Result<()>>();
    // Only one thread at a time requests batches, but not always the same thread.
    send::<warpfeed::Batches<warpfeed::HostBatch>>();
    send::<warpfeed::Epoch<'_, warpfeed::HostBatch>>();
    send::<warpfeed::IntoIter>();
    // Many threads may share one decoder.
    both::<warpfeed::Decoder<warpfeed::HostBatch>>();
    both::<warpfeed::DynamicBatcher<warpfeed::HostBatch, Vec<u8>>>();
    both::<warpfeed::Pending<warpfeed::HostBatch>>();
    const { assert!(!is_sync!(warpfeed::Batches<warpfeed::HostBatch>)) };
    const { assert!(is_sync!(warpfeed::HostBatch)) };
}

#[test]
fn the_parts_of_a_loader_can_move_to_other_threads() {
    both::<batch::Dtype>();
    both::<batch::Field>();
    both::<batch::Layout>();
    both::<batch::Normalize>();
    both::<batch::TensorView<'_>>();
    both::<batch::BatchWriter>();
    both::<decode::Codecs>();
    both::<decode::Condition>();
    both::<decode::Info>();
    // Only one thread decodes an image.
    send::<decode::Job<'_>>();
    both::<decode::JpegInfo>();
    send::<decode::EncodedImage<'_>>();
    both::<decode::Pixels>();
    both::<decode::RawRgb>();
    both::<decode::Rect>();
    both::<decode::Size>();
    both::<field::Annotations>();
    both::<field::BoxFormat>();
    both::<field::Boxes>();
    both::<field::Image>();
    both::<field::Label>();
    both::<field::DenseMap>();
    both::<field::Mask>();
    both::<field::MultiHot>();
    both::<field::NdArray>();
    both::<field::Keypoints>();
    both::<field::Ragged>();
    both::<format::Format>();
    both::<sampler::LastBatch>();
    both::<sampler::Mixture>();
    both::<sampler::Rank>();
    both::<sampler::Repeat<sampler::Sequential>>();
    both::<sampler::Rng>();
    both::<sampler::Sequential>();
    both::<sampler::Shuffled>();
    both::<sampler::Subset<sampler::Sequential>>();
    both::<sampler::Weighted>();
    both::<sampler::Windowed>();
    both::<source::RawValues>();
    both::<source::Concat>();
    both::<source::Folder>();
    both::<source::Lmdb>();
    both::<source::Memory>();
    both::<source::MsgPack>();
    both::<source::Classes>();
    both::<source::Options>();
    both::<source::Table>();
    both::<source::TableOptions>();
    both::<source::OwnedSample>();
    both::<source::Sample<'_>>();
    both::<source::Tar>();
    both::<source::Coco>();
    both::<source::Yolo>();
    both::<source::Voc>();
    both::<transform::Augment>();
    both::<transform::ColorJitter>();
    both::<transform::Erase>();
    both::<transform::ImageMut<'_>>();
    both::<transform::Mix>();
    both::<transform::Mixing>();
    both::<transform::Plan>();
    both::<transform::RandomErasing>();
    both::<transform::Resizer>();
    both::<transform::Window>();
}

#[test]
fn statistics_and_writers_can_move_to_other_threads() {
    both::<trace::Interval>();
    both::<trace::Bottleneck>();
    both::<trace::ProcessStats>();
    both::<trace::Schedule>();
    both::<trace::Stage>();
    both::<trace::StageMap<f64>>();
    both::<trace::StageStats>();
    both::<trace::Stats>();
    both::<trace::Straggler>();
    both::<trace::Verdict>();
    // A span ends on the thread that started it.
    debug::<trace::Span>();
    both::<pack::Progress>();
    both::<pack::RawSize>();
    both::<pack::Recode>();
    both::<pack::Refused>();
    both::<pack::Report>();
    both::<pack::WriteOptions>();
    both::<pack::Written>();
    both::<pack::TarWriter>();
    send::<pack::LmdbWriter>();
    // The callback runs on the calling thread.
    debug::<pack::Pack<'_>>();
    both::<warpfeed::device::DeviceStats>();
}

/// All workers share these user-implemented types.
#[test]
fn traits_that_users_implement_are_send_and_sync() {
    fn shared<T: Send + Sync + ?Sized>() {}
    shared::<dyn decode::Codec>();
    shared::<dyn sampler::Sampler>();
    shared::<dyn source::Source>();
    shared::<dyn source::ValueFormat>();
    shared::<dyn transform::Transform>();
    // Only one thread at a time uses a writer.
    fn handed_on<T: Send + ?Sized>() {}
    handed_on::<dyn pack::DatasetWriter>();
}

#[cfg(feature = "cuda")]
#[test]
fn device_types_can_move_to_other_threads() {
    use warpfeed::device::{CudaBatch, DlManagedTensorVersioned, DlTensor, DlpackTensor, Tensor};
    both::<CudaBatch>();
    both::<warpfeed::cuda::internal::SampleOps>();
    both::<Tensor<'_>>();
    both::<warpfeed::Replay<CudaBatch>>();
    send::<DlpackTensor>();
    const { assert!(!is_sync!(DlpackTensor)) };
    // Neither `Send` nor `Sync`, because the C representation contains pointers.
    debug::<DlTensor>();
    debug::<DlManagedTensorVersioned>();
    send::<warpfeed::Batches<CudaBatch>>();
    send::<warpfeed::Epoch<'_, CudaBatch>>();
}
