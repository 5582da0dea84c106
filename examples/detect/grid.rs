//! Interprets the network's output. For each cell of a grid, the network predicts whether the cell
//! contains the center of an object, and the box and class of that object. The layout follows YOLO
//! ("You Only Look Once", 2016), with one box per cell.

use ndarray::Array2;

use crate::convolution::softmax;

/// Side of an image in pixels.
pub(crate) const SIDE: usize = 64;
/// Side of a cell in pixels.
const CELL: usize = 8;
/// Side of the grid in cells.
const CELLS: usize = SIDE / CELL;
pub(crate) const CLASSES: usize = 3;
/// Number of values per cell: the score for an object, the center of the box as fractions of the
/// cell, the logarithms of the box's width and height in cells, and the class scores.
pub(crate) const ROWS: usize = 5 + CLASSES;
/// Minimum probability of an object for a detection.
const MIN_PROBABILITY: f32 = 0.5;
/// Two detections overlap too much if their intersection over union is at least this number. The
/// less certain of the two is then dropped.
const MAX_IOU: f32 = 0.45;

/// An object with its class. The box is (x1, y1, x2, y2) in pixels.
#[derive(Debug, Clone)]
pub(crate) struct TrueObject {
    pub(crate) corners: [f32; 4],
    pub(crate) class: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Detection {
    pub(crate) corners: [f32; 4],
    pub(crate) class: usize,
    probability: f32,
}

fn sigmoid(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

/// Returns the loss of an image, and its gradient with respect to `scores`, which has [`ROWS`] rows
/// and a column for each cell. If a cell contains the centers of several objects, only the last of
/// these objects counts.
pub(crate) fn loss(scores: &Array2<f32>, truth: &[TrueObject]) -> (f32, Array2<f32>) {
    let (mut loss, mut grad) = (0.0, Array2::zeros(scores.dim()));
    let mut object_of_cell: Vec<Option<&TrueObject>> = vec![None; CELLS * CELLS];
    for object in truth {
        let [x1, y1, x2, y2] = object.corners;
        let cell = |low: f32, high: f32| (((low + high) / 2.0) as usize / CELL).min(CELLS - 1);
        object_of_cell[cell(y1, y2) * CELLS + cell(x1, x2)] = Some(object);
    }
    for (cell, object) in object_of_cell.into_iter().enumerate() {
        let probability = sigmoid(scores[[0, cell]]);
        let objectness = f32::from(object.is_some());
        // Cross-entropy. Most cells contain no object, so those cells get a lower weight.
        let weight = if object.is_some() { 1.0 } else { 0.5 };
        loss -= weight
            * (objectness * probability.max(1e-9).ln() + (1.0 - objectness) * (1.0 - probability).max(1e-9).ln());
        grad[[0, cell]] = weight * (probability - objectness);
        let Some(TrueObject { corners: [x1, y1, x2, y2], class }) = object else { continue };
        let in_cell = |low: f32, high: f32, cell: usize| (low + high) / 2.0 / CELL as f32 - cell as f32;
        let log_size = |low: f32, high: f32| ((high - low) / CELL as f32).max(0.1).ln();
        let targets =
            [in_cell(*x1, *x2, cell % CELLS), in_cell(*y1, *y2, cell / CELLS), log_size(*x1, *x2), log_size(*y1, *y2)];
        for (row, target) in (1..).zip(targets) {
            // Half the squared distance, with the gradient clipped to the range from -1 to 1.
            let difference = scores[[row, cell]] - target;
            loss += difference * difference / 2.0;
            grad[[row, cell]] = difference.clamp(-1.0, 1.0);
        }
        let mut shares = scores.slice(ndarray::s![5.., cell..=cell]).to_owned();
        softmax(shares.view_mut());
        loss -= shares[[*class, 0]].max(1e-9).ln();
        shares[[*class, 0]] -= 1.0;
        grad.slice_mut(ndarray::s![5.., cell..=cell]).assign(&shares);
    }
    (loss, grad)
}

/// Returns the detected objects, most certain first.
pub(crate) fn detected_objects(scores: &Array2<f32>) -> Vec<Detection> {
    let detection = |cell: usize| {
        let score = |row: usize| scores[[row, cell]];
        let center = |offset: f32, cell: usize| (offset + cell as f32) * CELL as f32;
        let half_length = |size: f32| size.min(3.0).exp() * CELL as f32 / 2.0;
        let (x, y) = (center(score(1), cell % CELLS), center(score(2), cell / CELLS));
        let (w, h) = (half_length(score(3)), half_length(score(4)));
        let class = (0..CLASSES).max_by(|&a, &b| score(5 + a).total_cmp(&score(5 + b))).expect("there are classes");
        let clamp_edge = |edge: f32| edge.clamp(0.0, SIDE as f32);
        let corners = [clamp_edge(x - w), clamp_edge(y - h), clamp_edge(x + w), clamp_edge(y + h)];
        Detection { corners, class, probability: sigmoid(score(0)) }
    };
    let mut candidates: Vec<Detection> =
        (0..CELLS * CELLS).map(detection).filter(|object| object.probability >= MIN_PROBABILITY).collect();
    candidates.sort_by(|a, b| b.probability.total_cmp(&a.probability));
    let mut kept_detections: Vec<Detection> = Vec::new();
    for object in candidates {
        if kept_detections.iter().all(|other| iou(&other.corners, &object.corners) < MAX_IOU) {
            kept_detections.push(object);
        }
    }
    kept_detections
}

pub(crate) fn iou(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let area = |[x1, y1, x2, y2]: [f32; 4]| (x2 - x1).max(0.0) * (y2 - y1).max(0.0);
    let intersection = area([a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])]);
    intersection / (area(*a) + area(*b) - intersection).max(1e-6)
}
