//! SGD with momentum and weight decay. candle-nn's own SGD has no momentum, and the moments of its
//! AdamW cannot be saved, which resuming a run requires.

use std::collections::BTreeMap;

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};
use candle_nn::VarMap;

const MOMENTUM: f64 = 0.9;
const DECAY: f64 = 5e-4;

/// The trained variables by name, each with its momentum.
pub(crate) struct Sgd {
    variables: BTreeMap<String, (Var, Tensor)>,
}

impl Sgd {
    /// All variables of `weights`, with zero momentum.
    pub(crate) fn new(weights: &VarMap) -> Result<Self> {
        let held = weights.data().lock().expect("no thread panicked while holding the weights");
        let at_rest = |(name, var): (&String, &Var)| Ok((name.clone(), (var.clone(), var.zeros_like()?)));
        Ok(Sgd { variables: held.iter().map(at_rest).collect::<Result<_>>()? })
    }

    /// Takes one step down `gradients`. Variables without a gradient, the running statistics, do
    /// not change.
    pub(crate) fn step(&mut self, gradients: &GradStore, rate: f64) -> Result<()> {
        for (variable, speed) in self.variables.values_mut() {
            let Some(gradient) = gradients.get(variable) else { continue };
            let value = variable.as_detached_tensor();
            // Detached, because the momentum is a sum of all gradients so far, and a candle
            // gradient keeps the graph of its step alive, with every activation.
            let gradient = gradient.detach();
            *speed = (((&*speed * MOMENTUM)? + gradient)? + (&value * DECAY)?)?;
            variable.set(&(value - (&*speed * rate)?)?)?;
        }
        Ok(())
    }

    /// The variables with their names, in order.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.variables.iter().map(|(name, (variable, _))| (name.as_str(), variable))
    }

    /// The state that a resumed run needs: `NAME` and `speed.NAME`.
    pub(crate) fn state(&self) -> impl Iterator<Item = (String, Tensor)> + '_ {
        self.variables.iter().flat_map(|(name, (variable, speed))| {
            [(name.clone(), variable.as_detached_tensor()), (format!("speed.{name}"), speed.clone())]
        })
    }

    /// Restores the state that [`state`](Sgd::state) returned.
    pub(crate) fn restore(&mut self, state: &std::collections::HashMap<String, Tensor>) -> Result<()> {
        let find = |name: &str| {
            state.get(name).ok_or_else(|| candle_core::Error::msg(format!("{name}: not in the checkpoint")))
        };
        for (name, (variable, speed)) in &mut self.variables {
            variable.set(find(name)?)?;
            *speed = find(&format!("speed.{name}"))?.clone();
        }
        Ok(())
    }
}
