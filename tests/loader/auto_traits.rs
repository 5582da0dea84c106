//! Checks at compile time that public types implement `Send`, `Sync` and `Debug`, or the opposite.

use std::fmt::Debug;

use warpfeed::{batch, decode, field, format, pack, sampler, source, trace, transform};

fn debug<T: Debug + ?Sized>() {}
fn send<T: Send + Debug + ?Sized>() {}
fn assert_send_and_sync<T: Send + Sync + Debug + ?Sized>() {}

/// Whether `T` is `Sync`. An inherent constant takes precedence over the trait's constant.
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
    assert_send_and_sync::<warpfeed::Loader>();
    assert_send_and_sync::<warpfeed::HostBatch>();
    assert_send_and_sync::<warpfeed::BatchInfo>();
    assert_send_and_sync::<warpfeed::Error>();
    assert_send_and_sync::<warpfeed::ErrorKind>();
    assert_send_and_sync::<warpfeed::SampleError>();
    assert_send_and_sync::<warpfeed::MemoryPlan>();
    assert_send_and_sync::<warpfeed::OnError>();
    assert_send_and_sync::<warpfeed::Checkpoint>();
    assert_send_and_sync::<warpfeed::Replay<warpfeed::HostBatch>>();
    assert_send_and_sync::<warpfeed::Result<()>>();
    // One thread at a time requests batches, but not always the same thread.
    send::<warpfeed::Batches<warpfeed::HostBatch>>();
    send::<warpfeed::Epoch<'_, warpfeed::HostBatch>>();
    send::<warpfeed::IntoIter>();
    assert_send_and_sync::<warpfeed::Decoder<warpfeed::HostBatch>>();
    assert_send_and_sync::<warpfeed::DynamicBatcher<warpfeed::HostBatch, Vec<u8>>>();
    assert_send_and_sync::<warpfeed::Pending<warpfeed::HostBatch>>();
    const { assert!(!is_sync!(warpfeed::Batches<warpfeed::HostBatch>)) };
    const { assert!(is_sync!(warpfeed::HostBatch)) };
}

#[test]
fn the_parts_of_a_loader_can_move_to_other_threads() {
    assert_send_and_sync::<batch::Dtype>();
    assert_send_and_sync::<batch::Field>();
    assert_send_and_sync::<batch::Layout>();
    assert_send_and_sync::<batch::Normalize>();
    assert_send_and_sync::<batch::TensorView<'_>>();
    assert_send_and_sync::<batch::BatchWriter>();
    assert_send_and_sync::<decode::Codecs>();
    assert_send_and_sync::<decode::Condition>();
    assert_send_and_sync::<decode::Info>();
    send::<decode::Job<'_>>();
    assert_send_and_sync::<decode::JpegInfo>();
    send::<decode::EncodedImage<'_>>();
    assert_send_and_sync::<decode::Pixels>();
    assert_send_and_sync::<decode::RawRgb>();
    assert_send_and_sync::<decode::Rect>();
    assert_send_and_sync::<decode::Size>();
    assert_send_and_sync::<field::Annotations>();
    assert_send_and_sync::<field::BoxFormat>();
    assert_send_and_sync::<field::Boxes>();
    assert_send_and_sync::<field::Image>();
    assert_send_and_sync::<field::Label>();
    assert_send_and_sync::<field::DenseMap>();
    assert_send_and_sync::<field::Mask>();
    assert_send_and_sync::<field::MultiHot>();
    assert_send_and_sync::<field::NdArray>();
    assert_send_and_sync::<field::Keypoints>();
    assert_send_and_sync::<field::Ragged>();
    assert_send_and_sync::<format::Format>();
    assert_send_and_sync::<sampler::LastBatch>();
    assert_send_and_sync::<sampler::Mixture>();
    assert_send_and_sync::<sampler::Rank>();
    assert_send_and_sync::<sampler::Repeat<sampler::Sequential>>();
    assert_send_and_sync::<sampler::Rng>();
    assert_send_and_sync::<sampler::Sequential>();
    assert_send_and_sync::<sampler::Shuffled>();
    assert_send_and_sync::<sampler::Subset<sampler::Sequential>>();
    assert_send_and_sync::<sampler::Weighted>();
    assert_send_and_sync::<sampler::Windowed>();
    assert_send_and_sync::<source::RawValues>();
    assert_send_and_sync::<source::Concat>();
    assert_send_and_sync::<source::Folder>();
    assert_send_and_sync::<source::Lmdb>();
    assert_send_and_sync::<source::Memory>();
    assert_send_and_sync::<source::MsgPack>();
    assert_send_and_sync::<source::Classes>();
    assert_send_and_sync::<source::Options>();
    assert_send_and_sync::<source::Table>();
    assert_send_and_sync::<source::TableOptions>();
    assert_send_and_sync::<source::OwnedSample>();
    assert_send_and_sync::<source::Sample<'_>>();
    assert_send_and_sync::<source::Tar>();
    assert_send_and_sync::<source::Coco>();
    assert_send_and_sync::<source::Yolo>();
    assert_send_and_sync::<source::Voc>();
    assert_send_and_sync::<transform::Augment>();
    assert_send_and_sync::<transform::ColorJitter>();
    assert_send_and_sync::<transform::Erase>();
    assert_send_and_sync::<transform::ImageMut<'_>>();
    assert_send_and_sync::<transform::Mix>();
    assert_send_and_sync::<transform::Mixing>();
    assert_send_and_sync::<transform::Plan>();
    assert_send_and_sync::<transform::RandomErasing>();
    assert_send_and_sync::<transform::Resizer>();
    assert_send_and_sync::<transform::Window>();
}

#[test]
fn statistics_and_writers_can_move_to_other_threads() {
    assert_send_and_sync::<trace::Interval>();
    assert_send_and_sync::<trace::Bottleneck>();
    assert_send_and_sync::<trace::ProcessStats>();
    assert_send_and_sync::<trace::Schedule>();
    assert_send_and_sync::<trace::Stage>();
    assert_send_and_sync::<trace::StageMap<f64>>();
    assert_send_and_sync::<trace::StageStats>();
    assert_send_and_sync::<trace::Stats>();
    assert_send_and_sync::<trace::Straggler>();
    assert_send_and_sync::<trace::Verdict>();
    // A span ends on the thread that started it.
    debug::<trace::Span>();
    assert_send_and_sync::<pack::Progress>();
    assert_send_and_sync::<pack::RawSize>();
    assert_send_and_sync::<pack::Recode>();
    assert_send_and_sync::<pack::ImageIssue>();
    assert_send_and_sync::<pack::Report>();
    assert_send_and_sync::<pack::WriteOptions>();
    assert_send_and_sync::<pack::Written>();
    assert_send_and_sync::<pack::TarWriter>();
    send::<pack::LmdbWriter>();
    // The callback runs on the calling thread.
    debug::<pack::Pack<'_>>();
    assert_send_and_sync::<warpfeed::device::DeviceStats>();
}

/// All workers share the implementations of these traits.
#[test]
fn traits_that_users_implement_are_send_and_sync() {
    fn shared<T: Send + Sync + ?Sized>() {}
    shared::<dyn decode::Codec>();
    shared::<dyn sampler::Sampler>();
    shared::<dyn source::Source>();
    shared::<dyn source::ValueFormat>();
    shared::<dyn transform::Transform>();
    // One thread at a time uses a writer.
    fn handed_on<T: Send + ?Sized>() {}
    handed_on::<dyn pack::DatasetWriter>();
}

#[cfg(feature = "cuda")]
#[test]
fn device_types_can_move_to_other_threads() {
    use warpfeed::device::{CudaBatch, DlManagedTensorVersioned, DlTensor, DlpackTensor, Tensor};
    assert_send_and_sync::<CudaBatch>();
    assert_send_and_sync::<warpfeed::cuda::internal::SampleOps>();
    assert_send_and_sync::<Tensor<'_>>();
    assert_send_and_sync::<warpfeed::Replay<CudaBatch>>();
    send::<DlpackTensor>();
    const { assert!(!is_sync!(DlpackTensor)) };
    // Neither `Send` nor `Sync`, because the C representation contains pointers.
    debug::<DlTensor>();
    debug::<DlManagedTensorVersioned>();
    send::<warpfeed::Batches<CudaBatch>>();
    send::<warpfeed::Epoch<'_, CudaBatch>>();
}
