//! Draws `halve` for every other sample.

use super::halve::Halved;
use super::operation::Operation;
use super::registry::Drawn;
use crate::decode::Size;
use crate::error::Result;
use crate::order::Rng;

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Halve;

impl Operation for Halve {
    fn changes_colours(&self) -> Option<&'static str> {
        Some("Halve")
    }

    fn without_device_code(&self) -> Option<&'static str> {
        Some("Halve")
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn draw(&self, _: Size, rng: &mut Rng, to: &mut Drawn) {
        if rng.chance(0.5) {
            to.push(Halved { unused: 0 });
        }
    }
}
