//! SGD with momentum and weight decay. Its state can be saved, so that a run can be resumed.
//! candle-nn's SGD has no momentum, and the moments of its AdamW cannot be saved.

use std::collections::BTreeMap;

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};
use candle_nn::VarMap;

const MOMENTUM: f64 = 0.9;
const WEIGHT_DECAY: f64 = 5e-4;

pub(crate) struct Sgd {
    variables: BTreeMap<String, (Var, Tensor)>,
}

impl Sgd {
    pub(crate) fn new(weights: &VarMap) -> Result<Self> {
        let weights_by_name = weights.data().lock().expect("no thread panicked while holding the weights");
        let with_zero_momentum = |(name, var): (&String, &Var)| Ok((name.clone(), (var.clone(), var.zeros_like()?)));
        Ok(Sgd { variables: weights_by_name.iter().map(with_zero_momentum).collect::<Result<_>>()? })
    }

    /// Updates the variables. Variables without a gradient, such as the running statistics of batch
    /// normalization, do not change.
    pub(crate) fn step(&mut self, gradients: &GradStore, rate: f64) -> Result<()> {
        for (variable, momentum) in self.variables.values_mut() {
            let Some(gradient) = gradients.get(variable) else { continue };
            let value = variable.as_detached_tensor();
            // A candle gradient keeps the autograd graph of its step alive, with every activation.
            // The momentum is a sum of all gradients, so without `detach`, it would keep the graphs
            // of all steps alive.
            let gradient = gradient.detach();
            *momentum = (((&*momentum * MOMENTUM)? + gradient)? + (&value * WEIGHT_DECAY)?)?;
            variable.set(&(value - (&*momentum * rate)?)?)?;
        }
        Ok(())
    }

    /// Returns the variables with their names, sorted by name.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.variables.iter().map(|(name, (variable, _))| (name.as_str(), variable))
    }

    /// Returns the value of each variable as `NAME`, and its momentum as `momentum.NAME`.
    pub(crate) fn state(&self) -> impl Iterator<Item = (String, Tensor)> + '_ {
        self.variables.iter().flat_map(|(name, (variable, momentum))| {
            [(name.clone(), variable.as_detached_tensor()), (format!("momentum.{name}"), momentum.clone())]
        })
    }

    pub(crate) fn restore(&mut self, state: &std::collections::HashMap<String, Tensor>) -> Result<()> {
        let find = |name: &str| {
            state.get(name).ok_or_else(|| candle_core::Error::msg(format!("the checkpoint does not contain {name}")))
        };
        for (name, (variable, momentum)) in &mut self.variables {
            variable.set(find(name)?)?;
            *momentum = find(&format!("momentum.{name}"))?.clone();
        }
        Ok(())
    }
}
