// Functions of libtorch that tch does not bind: they create tensors that share foreign memory by
// DLPack, and get the stream that the calling thread uses.

#include <ATen/DLConvertor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdio>
#include <exception>
#include <memory>

#ifdef WARPFEED_LIBTORCH_CUDA
namespace at::cuda {
int warp_size();
}
#endif

namespace {

template <class F>
bool caught(char* message, size_t length, F work) noexcept {
  try {
    work();
    return true;
  } catch (const c10::Error& e) {
    std::snprintf(message, length, "%s", e.what_without_backtrace());
  } catch (const std::exception& e) {
    std::snprintf(message, length, "%s", e.what());
  }
  return false;
}

}  // namespace

extern "C" {

// Returns a tensor that calls the deleter of `managed` when the tensor's memory is released. If
// libtorch rejects `managed`, calls the deleter, and returns null with a message.
at::Tensor* warpfeed_tch_share(DLManagedTensor* managed, char* message, size_t length) {
  at::Tensor* tensor = nullptr;
  caught(message, length, [&] {
    std::shared_ptr<DLManagedTensor> owner(managed, [](DLManagedTensor* gone) { gone->deleter(gone); });
    tensor = new at::Tensor(at::fromDLPack(managed, [owner](void*) mutable { owner.reset(); }));
  });
  return tensor;
}

// Gets the handle of the stream that the calling thread uses on CUDA device `device`. Returns false
// with a message if libtorch reports an error, or if the stream is external: libtorch does not own
// an external stream, so nothing guarantees how long its handle is valid.
bool warpfeed_tch_stream(int device, void** stream, char* message, size_t length) {
#ifdef WARPFEED_LIBTORCH_CUDA
  // Linkers omit a library that is never referenced. libtorch would then not find the GPU.
  int (*volatile cuda_part)() = at::cuda::warp_size;
  (void)cuda_part;
#endif
  return caught(message, length, [&] {
    c10::impl::VirtualGuardImpl cuda(c10::DeviceType::CUDA);
    c10::Stream current = cuda.getStream(c10::Device(c10::DeviceType::CUDA, device));
    *stream = current.native_handle();
    // The identifier of an external stream is its handle. Both are 0 for the default stream.
    TORCH_CHECK(*stream == nullptr || current.id() != reinterpret_cast<c10::StreamId>(*stream),
                "the current stream is external (created outside libtorch): make a stream of libtorch current");
  });
}

}
