//! Parses the annotation files in `Annotations`.

use roxmltree::{Document, Node};

use crate::error::{Error, Result};
use crate::values::annotated::check_box;

#[derive(Debug, Default)]
pub(super) struct Annotation {
    pub(super) names: Vec<String>,
    /// Left, top, right and bottom edge, in pixels counted from 0.
    pub(super) edges: Vec<[f32; 4]>,
    pub(super) difficult: Vec<u8>,
    /// Width and height of the image, or `None` if the file omits them or contains 0.
    pub(super) size: Option<(u32, u32)>,
}

impl Annotation {
    /// `first_pixel` is the coordinate of the first pixel. Errors about an element below the root
    /// contain its line number.
    pub(super) fn parse(text: &str, first_pixel: f64) -> Result<Self> {
        let document = Document::parse(text).map_err(|e| Error::in_source(format!("not XML: {e}")))?;
        let root = document.root_element();
        if root.tag_name().name() != "annotation" {
            let name = root.tag_name().name();
            return Err(Error::in_source(format!("the root element is <{name}>: expected <annotation>")));
        }
        let size = child(root, "size")
            .map(|size| Ok::<_, Error>([child_number(size, "width")?, child_number(size, "height")?]));
        // Some programs write 0 for an unknown size.
        let size = size.transpose()?.filter(|size| size.iter().all(|&side| side > 0.0));
        let rounded = |side: f64| side.round() as u32;
        let mut objects =
            Annotation { size: size.map(|[width, height]| (rounded(width), rounded(height))), ..Annotation::default() };
        for object in root.children().filter(|node| node.has_tag_name("object")) {
            let object_error = |cause: String| Error::in_source(format!("line {}: {cause}", line(object)));
            let name = child(object, "name").and_then(|name| name.text()).map(str::trim);
            let Some(name) = name.filter(|name| !name.is_empty()) else {
                return Err(object_error("an <object> has no <name>".to_owned()));
            };
            let Some(bndbox) = child(object, "bndbox") else {
                return Err(object_error(format!("the {name} has no <bndbox>")));
            };
            let [left, top, right, bottom] = ["xmin", "ymin", "xmax", "ymax"].map(|edge| child_number(bndbox, edge));
            // If pixels are counted from 1, the right and bottom coordinates denote the last pixel
            // inside the box. The end of that pixel, counted from 0, is the same number, so these
            // coordinates need no correction.
            let edges = [left? - first_pixel, top? - first_pixel, right?, bottom?];
            let [width, height] = size.unwrap_or([f64::INFINITY; 2]);
            check_box(edges, width, height, 1.0).map_err(|e| object_error(format!("the {name}: {}", e.cause())))?;
            let difficult = match child(object, "difficult") {
                Some(_) => child_number(object, "difficult")? != 0.0,
                None => false,
            };
            objects.names.push(name.to_owned());
            objects.edges.push(edges.map(|edge| edge as f32));
            objects.difficult.push(u8::from(difficult));
        }
        Ok(objects)
    }
}

fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.has_tag_name(name))
}

fn line(node: Node<'_, '_>) -> u32 {
    node.document().text_pos_at(node.range().start).row
}

fn child_number(node: Node<'_, '_>, name: &str) -> Result<f64> {
    let element = child(node, name).ok_or_else(|| {
        let (line, node) = (line(node), node.tag_name().name());
        Error::in_source(format!("line {line}: <{node}> has no <{name}>"))
    })?;
    let text = element.text().unwrap_or_default().trim();
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| Error::in_source(format!("line {}: <{name}> is {text:?}: expected a number", line(element))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_start_at_zero_and_object_parts_are_ignored() {
        let text = "<annotation><size><width>20</width><height>10</height><depth>3</depth></size>
            <object><name>person</name><difficult>1</difficult>
              <part><name>head</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></part>
              <bndbox><xmin>1</xmin><ymin>1.5</ymin><xmax>20</xmax><ymax>10</ymax></bndbox></object>
            <object><bndbox><xmax>2</xmax><xmin>2</xmin><ymin>3</ymin><ymax>3</ymax></bndbox><name> a dog </name></object>
            </annotation>";
        let objects = Annotation::parse(text, 1.0).unwrap();
        assert_eq!(objects.names, ["person", "a dog"]);
        assert_eq!(objects.edges, [[0.0, 0.5, 20.0, 10.0], [1.0, 2.0, 2.0, 3.0]], "the dog is a single pixel");
        assert_eq!(objects.difficult, [1, 0]);
        assert_eq!(objects.size, Some((20, 10)));
        assert!(Annotation::parse("<annotation/>", 1.0).unwrap().names.is_empty());
    }

    #[test]
    fn invalid_element_fails_with_its_line() {
        let object = |inner: &str| {
            format!(
                "<annotation>\n<size><width>20</width><height>10</height></size>\n<object>{inner}</object></annotation>"
            )
        };
        let bndbox = |edges: [&str; 4]| {
            let [a, b, c, d] = edges;
            object(&format!(
                "<name>cat</name>\n<bndbox><xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax><ymax>{d}</ymax></bndbox>"
            ))
        };
        for (text, words) in [
            ("<a>".to_owned(), "not XML: "),
            ("<a/>".to_owned(), "the root element is <a>: expected <annotation>"),
            (object(""), "line 3: an <object> has no <name>"),
            (object("<name>cat</name>"), "line 3: the cat has no <bndbox>"),
            (object("<name>cat</name>\n<bndbox/>"), "line 4: <bndbox> has no <xmin>"),
            (bndbox(["1", "1", "x", "2"]), "line 4: <xmax> is \"x\": expected a number"),
            (bndbox(["5", "1", "3", "2"]), "line 3: the cat: x ranges from 4 to 3, but the image is 20 wide"),
            (bndbox(["1", "1", "3", "12"]), "line 3: the cat: y ranges from 0 to 12, but the image is 10 high"),
        ] {
            let cause = Annotation::parse(&text, 1.0).unwrap_err().cause().to_owned();
            assert!(cause.contains(words), "{text}: {cause}");
        }
    }
}
