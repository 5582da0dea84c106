//! Tests views, which are several images made from one source image, each with its own augmentation
//! and size. A view must be a function of (seed, epoch, sample, view).

use std::path::Path;

use crate::reference_fields::npy;
use crate::support::check_resume;
use warpfeed::field::{Image, Mask};
use warpfeed::transform::Mix;
use warpfeed::{Augment, Dtype, HostBatch, Loader, Result};

fn loader() -> Loader {
    Loader::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/mini"))
        .subset((0..16).collect::<Vec<u64>>())
        .batch_size(4)
        .seed(5)
        .workers(2)
}

fn epoch(loader: Loader, epoch: u64, name: &str) -> Vec<u8> {
    let mut batches = loader.host().unwrap();
    let bytes = |batch: Result<HostBatch>| batch.unwrap().field(name).expect(name).bytes().to_vec();
    batches.epoch(epoch).flat_map(bytes).collect()
}

fn open_error(loader: Loader) -> String {
    loader.host().expect_err("opening fails").to_string()
}

#[test]
fn a_view_equals_the_image_that_its_augmentation_makes_alone() {
    let views = [
        Augment::resize(8, 12),
        Augment::eval(40, 32),
        Augment::resize(8, 12).flip(1.0),
        Augment::letterbox(20, 30).fill([1, 2, 3]).vertical_flip(1.0),
        Augment::center_crop(16).grayscale(1.0),
    ];
    let with_views = loader().views(views.clone());
    for (number, view) in views.into_iter().enumerate() {
        let alone = epoch(loader().augment(view.clone()), 0, "image");
        assert!(alone == epoch(with_views.clone(), 0, &format!("views.{number}")), "{view:?}");
        assert_eq!(alone.len(), 16 * 3 * view.output_size().area() as usize);
    }
    let batch = with_views.clone().into_iter().next().unwrap().unwrap();
    let names: Vec<_> = batch.fields().map(|field| field.name.clone()).collect();
    assert_eq!(names, ["views.0", "views.1", "views.2", "views.3", "views.4", "label"]);
    assert_eq!(batch.field("views.3").unwrap().shape(), [4, 30, 20, 3]);
}

#[test]
fn a_view_is_a_function_of_seed_epoch_sample_and_view() {
    let rows_of = |loader: Loader, number: u64, view: usize| epoch(loader, number, &format!("views.{view}"));
    let every_view = |loader: Loader, epoch: u64| -> Vec<Vec<u8>> {
        let mut batches = loader.views(Augment::dino_views(16, 8, 8)).host().unwrap();
        let mut views = vec![Vec::new(); 10];
        for batch in batches.epoch(epoch) {
            let batch = batch.unwrap();
            let field = |n: usize| batch.field(&format!("views.{n}")).unwrap().bytes().to_vec();
            views.iter_mut().enumerate().for_each(|(n, view)| view.extend(field(n)));
        }
        views
    };
    let single_worker = every_view(loader().workers(1), 1);
    assert!(single_worker == every_view(loader().workers(5).prefetch(3), 1));
    for other in [every_view(loader(), 2), every_view(loader().seed(6), 1)] {
        assert!(single_worker.iter().zip(&other).all(|(a, b)| a != b));
    }
    let twins = loader().views(Augment::simclr_views(24));
    assert!(rows_of(twins.clone(), 0, 0) != rows_of(twins.clone(), 0, 1));
    let second = rows_of(twins, 0, 1);
    let others = loader().views([Augment::resize(4, 4), Augment::simclr_views(24).remove(1), Augment::train(9)]);
    assert!(second == rows_of(others.batch_size(64), 0, 1));
    let some = loader().views(Augment::simclr_views(24)).subset(vec![7, 3]).batch_size(2);
    let each = 24 * 24 * 3;
    let alone = rows_of(some, 0, 1);
    assert!(alone[..each] == second[7 * each..][..each] && alone[each..] == second[3 * each..][..each]);
}

#[test]
fn a_run_with_views_resumes() {
    let loader = || loader().views(Augment::simclr_views(16)).shuffle(3);
    check_resume(loader, |batch| batch.field("views.1").unwrap().bytes().to_vec());
}

#[test]
fn fields_follow_the_image_when_there_are_views() {
    use warpfeed::source::{Memory, OwnedSample};
    let sample = |n: usize| {
        let mask: Vec<u8> = (0..24 * 20).map(|i| (i * 7 + n) as u8).collect();
        let pixels: Vec<u8> = mask.iter().flat_map(|&level| [level; 3]).collect();
        OwnedSample::new(n.to_string())
            .field("rgb.npy", npy("|u1", "(20, 24, 3)", &pixels))
            .field("mask.npy", npy("|u1", "(20, 24)", &mask))
            .label(0)
    };
    let loader = Loader::source(Memory::new((0..12).map(sample).collect())).batch_size(4).seed(9);
    // Nothing is interpolated, so each mask pixel equals the gray value of the corresponding image
    // pixel.
    let augment = Augment::center_crop(10).flip(0.5).vertical_flip(0.5);
    let loader = loader.augment(augment.clone()).views([augment.clone(), augment]).field("mask", Mask::new(Dtype::U8));
    assert!(open_error(loader.clone()).contains("\"mask\" follows the image, but the loader has only views"));
    let mut differ = 0;
    for batch in loader.field("image", Image::new()) {
        let batch = batch.unwrap();
        let bytes = |name: &str| batch.field(name).unwrap().bytes().to_vec();
        let (mask, image) = (bytes("mask"), bytes("image"));
        assert!(image.chunks(3).map(|pixel| pixel[0]).eq(mask));
        differ += usize::from(bytes("views.0") != image) + usize::from(bytes("views.1") != image);
    }
    assert!(differ >= 4);
}

#[test]
fn views_that_cannot_work_are_refused_when_the_loader_opens() {
    let mixed = Augment::train(16).mix(Mix::mixup(0.2));
    assert!(open_error(loader().views([mixed.clone()])).contains("\"views.0\" is a view, and views cannot be mixed"));
    let every_option = loader().views([Augment::train(16)]).augment(mixed).soft_labels(4, 0.0);
    assert!(open_error(every_option).contains("views cannot be mixed"));
    assert!(open_error(loader().views([Augment::iou_crop(16, 16)])).contains("boxes cannot follow a view"));
    let many = loader().views(vec![Augment::train(8); 17]);
    assert!(open_error(many).contains("17 image fields, including views: expected at most 16"));
    assert!(loader().views(vec![Augment::train(8); 16]).host().is_ok());
    let refusal = open_error(loader().views([Augment::train(16), Augment::train(16).scale(0.9, 0.1)]));
    assert!(refusal.contains("0.9") && refusal.contains("0.1"), "{refusal}");
    assert!(open_error(loader().views([Augment::train(0)])).contains("0x0"));
}
