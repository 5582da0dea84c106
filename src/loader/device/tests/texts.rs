//! Tests that strings stay on the host, and are delivered with the device batch of their samples.

use super::*;
use crate::field::Text;

#[test]
fn a_device_batch_contains_the_texts_of_its_samples() {
    let sample = |(n, bytes): (usize, Vec<u8>)| {
        let sample = OwnedSample::new(format!("{n}")).field("jpg", bytes);
        sample.field("caption.txt", format!("caption {n}").into_bytes())
    };
    let samples = originals(true).into_iter().enumerate().map(sample).collect();
    let loader = Loader::source(Samples::new(samples)).batch_size(8).shuffle(3).workers(2).prefetch(2);
    let loader = loader.drop_field("label").augment(Augment::train(32)).field("caption", Text::new());
    for decode_on in [DecodeOn::Cpu, DecodeOn::Gpu] {
        let sim = Sim::new(Mistake::None, 20);
        let loader = loader.clone().decode_on(decode_on);
        let mut opened = loader.open_device::<_, ConsumerBatch<Sim>>(sim.clone(), sim.stream().unwrap()).unwrap();
        opened.start(0, 0);
        let mut count = 0;
        while let Some(batch) = opened.ring.next(&mut Wait::begins(&mut || Some(Duration::from_millis(100)))) {
            let batch = batch.unwrap();
            let info = &batch.slot().info;
            let texts: Vec<&str> = info.texts("caption").unwrap().collect();
            assert_eq!(texts, info.ids().map(|id| format!("caption {id}")).collect::<Vec<_>>());
            count += texts.len();
        }
        assert_eq!(count, 48);
    }
}
