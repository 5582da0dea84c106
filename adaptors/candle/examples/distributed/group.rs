//! The processes of a training run, connected by NCCL.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use candle_core::backprop::GradStore;
use candle_core::cuda_backend::cudarc::nccl::{Comm, Id, ReduceOp};
use candle_core::{CudaStorage, Device, Result, Storage, Tensor, Var, op::BackpropOp};
use warpfeed::Rank;

use crate::sgd::Sgd;

const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Group {
    nccl: Comm,
    device: Device,
}

impl Group {
    /// Connects all processes. Rank 0 sends the NCCL unique ID to the other ranks over TCP, on
    /// port `MASTER_PORT` + 1, because torchrun itself uses `MASTER_PORT`.
    pub(crate) fn join(rank: Rank, device: &Device) -> Result<Self> {
        let address = std::env::var("MASTER_ADDR").unwrap_or_else(|_| "127.0.0.1".into());
        let port = std::env::var("MASTER_PORT").ok().and_then(|port| port.parse::<u16>().ok()).unwrap_or(29_500) + 1;
        let id = if rank.rank == 0 {
            let id = Id::new().map_err(nccl_error)?;
            if rank.world_size > 1 {
                let listener = TcpListener::bind(("0.0.0.0", port))?;
                let bytes = id.internal().map(|byte| byte as u8);
                for _ in 1..rank.world_size {
                    listener.accept()?.0.write_all(&bytes)?;
                }
            }
            id
        } else {
            let (mut bytes, start) = ([0u8; 128], Instant::now());
            let mut stream = loop {
                match TcpStream::connect((address.as_str(), port)) {
                    Ok(stream) => break stream,
                    Err(e) if start.elapsed() > TIMEOUT => return Err(e.into()),
                    Err(_) => std::thread::sleep(Duration::from_millis(50)),
                }
            };
            stream.read_exact(&mut bytes)?;
            Id::uninit(bytes.map(|byte| byte as std::ffi::c_char))
        };
        // NCCL uses candle's stream, so a step and its all-reduce need no event in between.
        let stream = device.as_cuda_device()?.cuda_stream();
        let nccl = Comm::from_rank(stream, rank.rank, rank.world_size, id).map_err(nccl_error)?;
        Ok(Group { nccl, device: device.clone() })
    }

    /// Returns the element-wise mean over all processes. `tensor` must be `f32`.
    pub(crate) fn average(&self, tensor: &Tensor) -> Result<Tensor> {
        self.reduce(tensor, &ReduceOp::Avg)
    }

    /// Returns the element-wise maximum over all processes. `tensor` must be `f32`.
    #[allow(dead_code)] // only the benchmark uses it
    pub(crate) fn maximum(&self, tensor: &Tensor) -> Result<Tensor> {
        self.reduce(tensor, &ReduceOp::Max)
    }

    fn reduce(&self, tensor: &Tensor, operation: &ReduceOp) -> Result<Tensor> {
        let device = self.device.as_cuda_device()?;
        let flat = tensor.flatten_all()?.force_contiguous()?;
        let mut reduced = device.alloc_zeros::<f32>(flat.elem_count())?;
        {
            let (storage, _) = flat.storage_and_layout();
            let Storage::Cuda(storage) = &*storage else { candle_core::bail!("the tensor is not on a GPU") };
            self.nccl.all_reduce(storage.as_cuda_slice::<f32>()?, &mut reduced, operation).map_err(nccl_error)?;
        }
        let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(reduced, device.clone()));
        Ok(Tensor::from_storage(storage, tensor.shape().clone(), BackpropOp::none(), false))
    }

    /// Averages all gradients in one all-reduce.
    pub(crate) fn average_gradients(&self, sgd: &Sgd, gradients: &mut GradStore) -> Result<()> {
        let with_gradient: Vec<(&Var, Tensor)> =
            sgd.variables().filter_map(|(_, variable)| Some((variable, gradients.get(variable)?.clone()))).collect();
        let means = self.average_together(with_gradient.iter().map(|(_, gradient)| gradient))?;
        for ((variable, _), mean) in with_gradient.into_iter().zip(means) {
            gradients.insert(variable, mean);
        }
        Ok(())
    }

    pub(crate) fn average_statistics(&self, sgd: &Sgd) -> Result<()> {
        let running: Vec<&Var> =
            sgd.variables().filter(|(name, _)| name.contains("running_")).map(|(_, v)| v).collect();
        let means = self.average_together(running.iter().map(|variable| variable.as_tensor()))?;
        running.into_iter().zip(means).try_for_each(|(variable, mean)| variable.set(&mean))
    }

    fn average_together<'a>(&self, tensors: impl Iterator<Item = &'a Tensor> + Clone) -> Result<Vec<Tensor>> {
        let flat = tensors.clone().map(Tensor::flatten_all).collect::<Result<Vec<_>>>()?;
        let mean = self.average(&Tensor::cat(&flat, 0)?)?;
        let mut offset = 0;
        tensors
            .map(|tensor| {
                let part = mean.narrow(0, offset, tensor.elem_count())?.reshape(tensor.shape());
                offset += tensor.elem_count();
                part
            })
            .collect()
    }

    /// Fails unless the weights of all processes are equal.
    pub(crate) fn assert_same_weights(&self, sgd: &Sgd) -> Result<()> {
        for (name, variable) in sgd.variables() {
            let (min, max) = (self.reduce(variable, &ReduceOp::Min)?, self.reduce(variable, &ReduceOp::Max)?);
            let difference = (max - min)?.abs()?.max_all()?.to_scalar::<f32>()?;
            // `!=` is true for NaN.
            if difference != 0.0 {
                candle_core::bail!("{name}: the weights of two processes differ by {difference}");
            }
        }
        Ok(())
    }
}

fn nccl_error(e: impl std::fmt::Debug) -> candle_core::Error {
    candle_core::Error::msg(format!("NCCL: {e:?}"))
}
