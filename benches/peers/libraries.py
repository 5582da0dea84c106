"""Writes and reads datasets in the formats of other libraries, using these libraries.

Each format defines a title, a `write` function that returns the path to open with warpfeed, and an
`open` function that returns a dataset for torch's `DataLoader`. A sample consists of an image and
its label. With `decoded`, the image is decoded and augmented. Without, only its size in bytes is
returned, to measure reading alone.
"""

import io
import pathlib
import pickle

SIZE, BATCH, WORKERS = 224, 64, 2
# Side of the images in arrays.
SIDE = 256


class Samples:
    """The JPEGs of class folders with their class indices, repeated until there are `count`
    samples."""

    def __init__(self, root, count):
        classes = sorted(path for path in pathlib.Path(root).iterdir() if path.is_dir())
        files = [(file, label) for label, path in enumerate(classes) for file in sorted(path.iterdir())]
        self.files = [(file, label) for file, label in files if file.suffix.lower() in {".jpg", ".jpeg"}]
        self.count = count if self.files else 0

    def __len__(self):
        return self.count

    def __iter__(self):
        for position in range(self.count):
            file, label = self.files[position % len(self.files)]
            yield file.read_bytes(), label

    def pixels(self):
        """The images at SIDE x SIDE with their labels. Repeated images are decoded only once."""
        import numpy as np
        from PIL import Image

        arrays = [np.asarray(Image.open(file).convert("RGB").resize((SIDE, SIDE))) for file, _ in self.files]
        images = np.empty((self.count, SIDE, SIDE, 3), np.uint8)
        for position in range(self.count):
            images[position] = arrays[position % len(arrays)]
        return images, np.array([self.files[position % len(arrays)][1] for position in range(self.count)])


def byte_count(original):
    """Replaces the image of a sample with its size in bytes, to measure only reading."""
    return len(original)


def augment(original):
    from PIL import Image
    from torchvision.transforms import v2

    global STEPS
    if "STEPS" not in globals():
        STEPS = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor()])
    if isinstance(original, bytes):
        original = Image.open(io.BytesIO(original))
    return STEPS(original.convert("RGB"))


def augment_pixels(original):
    """Augments an image that is an array of shape (height, width, channels)."""
    from PIL import Image

    return augment(Image.fromarray(original))


class Indexed:
    """A dataset that opens its file in each worker."""

    def __init__(self, path, count, transform):
        self.path, self.count, self.transform, self.reader = str(path), count, transform, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.reader is None:
            self.reader = self.open()
        original, label = self.read(index)
        return self.transform(original), label


class Format:
    title, shuffles = "", False

    @classmethod
    def transform(cls, decoded):
        return augment if decoded else byte_count


class Folder(Format):
    title = "class folders (`torchvision`)"

    @staticmethod
    def write(samples, folder):
        for position, (original, label) in enumerate(samples):
            path = folder / "set" / f"{label:03}" / f"{position:06}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(original)
        return folder / "set"

    @classmethod
    def open(cls, samples, folder, decoded):
        from torchvision.datasets import ImageFolder

        loader = {} if decoded else {"loader": lambda path: pathlib.Path(path).read_bytes()}
        return ImageFolder(folder / "set", cls.transform(decoded), **loader)


class Arrow(Format):
    title = "Arrow (`datasets`)"

    @staticmethod
    def rows(samples):
        import datasets

        features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})

        def rows():
            for original, label in samples:
                yield {"image": {"bytes": original, "path": None}, "label": label}

        return datasets.Dataset.from_generator(rows, features=features, keep_in_memory=True)

    @classmethod
    def write(cls, samples, folder):
        cls.rows(samples).save_to_disk(folder / "saved")
        return folder / "saved"

    @classmethod
    def opened(cls, rows, decoded):
        import datasets

        if not decoded:
            rows = rows.cast_column("image", datasets.Image(decode=False))

        def apply(batch):
            originals = batch["image"]
            created = [augment(original) if decoded else byte_count(original["bytes"]) for original in originals]
            return {"image": created, "label": batch["label"]}

        return rows.with_transform(apply)

    @classmethod
    def open(cls, samples, folder, decoded):
        import datasets

        return cls.opened(datasets.load_from_disk(folder / "saved"), decoded)


class Parquet(Arrow):
    # On first use, the library converts the data to Arrow files, which it then reads.
    title = "Parquet (`datasets`)"

    @classmethod
    def write(cls, samples, folder):
        import datasets

        file = folder / "x.parquet"
        cls.rows(samples).to_parquet(str(file))
        datasets.load_dataset("parquet", data_files=str(file), split="train", cache_dir=str(folder / "cache"))
        return file

    @classmethod
    def open(cls, samples, folder, decoded):
        import datasets

        cache = str(folder / "cache")
        file = str(folder / "x.parquet")
        return cls.opened(datasets.load_dataset("parquet", data_files=file, split="train", cache_dir=cache), decoded)


class Tar(Format):
    title, shuffles = "tar (`webdataset`)", True

    @staticmethod
    def write(samples, folder):
        import webdataset

        max_count = max(1, len(samples) // 8)
        with webdataset.ShardWriter(str(folder / "x-%06d.tar"), maxcount=max_count, verbose=0) as writer:
            for position, (original, label) in enumerate(samples):
                writer.write({"__key__": f"{position:08}", "jpg": original, "cls": label})
        return folder

    @classmethod
    def open(cls, samples, folder, decoded):
        import webdataset

        shards = sorted(map(str, folder.glob("x-*.tar")))
        rows = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000).to_tuple("jpg", "cls")
        return rows.map_tuple(cls.transform(decoded), int)


def with_sample_transform(dataset, transform):
    """A subclass of `dataset` that converts a sample from a dict to a transformed image and a
    label."""

    class Set(dataset):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return transform(sample["image"]), sample["label"]

    return Set


class Mds(Format):
    title, shuffles = "MDS (`streaming`)", True

    @staticmethod
    def write(samples, folder):
        import streaming

        with streaming.MDSWriter(out=str(folder / "mds"), columns={"image": "bytes", "label": "int"}) as writer:
            for original, label in samples:
                writer.write({"image": original, "label": label})
        return folder / "mds"

    @classmethod
    def open(cls, samples, folder, decoded):
        import streaming

        streaming.base.util.clean_stale_shared_memory()
        dataset = with_sample_transform(streaming.StreamingDataset, cls.transform(decoded))
        return dataset(local=str(folder / "mds"), shuffle=True, batch_size=BATCH)


class LitData(Format):
    title, shuffles = "LitData (`litdata`)", True

    @staticmethod
    def write(samples, folder):
        from litdata.streaming.cache import Cache

        cache = Cache(str(folder / "lit"), chunk_bytes=64 << 20)
        for position, (original, label) in enumerate(samples):
            cache[position] = {"image": original, "label": label}
        cache.done()
        cache.merge()
        return folder / "lit"

    @classmethod
    def open(cls, samples, folder, decoded):
        import litdata

        return with_sample_transform(litdata.StreamingDataset, cls.transform(decoded))(str(folder / "lit"), shuffle=True)


class TfRecord(Format):
    title, shuffles = "TFRecord (`tfrecord`)", True

    @staticmethod
    def write(samples, folder):
        from tfrecord import TFRecordWriter
        from tfrecord.tools import tfrecord2idx

        name = "train-00000-of-00001"
        writer = TFRecordWriter(str(folder / name))
        for original, label in samples:
            writer.write({"image/encoded": (original, "byte"), "image/class/label": (label, "int")})
        writer.close()
        (folder / "index").mkdir()
        tfrecord2idx.create_index(str(folder / name), str(folder / "index" / "x"))
        return folder / name

    @classmethod
    def open(cls, samples, folder, decoded):
        from tfrecord.torch.dataset import TFRecordDataset

        transform = cls.transform(decoded)
        types = {"image/encoded": "byte", "image/class/label": "int"}

        def convert_row(row):
            return transform(bytes(row["image/encoded"])), int(row["image/class/label"][0])

        file, index = folder / "train-00000-of-00001", folder / "index" / "x"
        return TFRecordDataset(str(file), str(index), types, shuffle_queue_size=1000, transform=convert_row)


class Lmdb(Format):
    title = "LMDB of pickled tuples (`lmdb`)"

    class Set(Indexed):
        def open(self):
            import lmdb

            return lmdb.open(self.path, subdir=False, readonly=True, lock=False)

        def read(self, index):
            with self.reader.begin() as transaction:
                return pickle.loads(transaction.get(b"%08d" % index))

    @staticmethod
    def write(samples, folder):
        import lmdb

        with lmdb.open(str(folder / "x.mdb"), subdir=False, map_size=1 << 40) as database:
            with database.begin(write=True) as target:
                for position, sample in enumerate(samples):
                    target.put(b"%08d" % position, pickle.dumps(sample))
        return folder / "x.mdb"

    @classmethod
    def open(cls, samples, folder, decoded):
        return cls.Set(folder / "x.mdb", len(samples), cls.transform(decoded))


class Hdf5(Format):
    title = "HDF5 of encoded images (`h5py`)"

    class Set(Indexed):
        def open(self):
            import h5py

            return h5py.File(self.path)

        def read(self, index):
            return self.reader["image"][index].tobytes(), int(self.reader["label"][index])

    @staticmethod
    def write(samples, folder):
        import h5py
        import numpy as np

        with h5py.File(folder / "x.h5", "w") as file:
            originals = file.create_dataset("image", (len(samples),), h5py.vlen_dtype(np.uint8))
            labels = []
            for position, (original, label) in enumerate(samples):
                originals[position] = np.frombuffer(original, np.uint8)
                labels.append(label)
            file["label"] = labels
        return folder / "x.h5"

    @classmethod
    def open(cls, samples, folder, decoded):
        return cls.Set(folder / "x.h5", len(samples), cls.transform(decoded))


class RecordIo(Format):
    title = "RecordIO (`mxnet`)"

    class Set(Indexed):
        def open(self):
            return recordio().MXIndexedRecordIO(self.path[:-4] + ".idx", self.path, "r")

        def read(self, index):
            header, original = recordio().unpack(self.reader.read_idx(index))
            return original, int(header.label)

    @staticmethod
    def write(samples, folder):
        library = recordio()
        writer = library.MXIndexedRecordIO(str(folder / "x.idx"), str(folder / "x.rec"), "w")
        for position, (original, label) in enumerate(samples):
            writer.write_idx(position, library.pack(library.IRHeader(0, label, position, 0), original))
        writer.close()
        return folder / "x.rec"

    @classmethod
    def open(cls, samples, folder, decoded):
        return cls.Set(folder / "x.rec", len(samples), cls.transform(decoded))


def recordio():
    """Imports only `mxnet.recordio`, because the rest of the package requires an old NumPy."""
    import importlib
    import importlib.util
    import sys
    import types

    if "mxnet.recordio" not in sys.modules:
        result = importlib.util.find_spec("mxnet")
        if result is None:
            raise ModuleNotFoundError("no module named mxnet", name="mxnet")
        package = types.ModuleType("mxnet")
        package.__path__ = list(result.submodule_search_locations)
        sys.modules["mxnet"] = package
    return importlib.import_module("mxnet.recordio")


class Beton(Format):
    # FFCV uses its own multithreaded loader instead of torch's `DataLoader`.
    title, shuffles = "`.beton` of JPEGs (`ffcv`)", True

    @staticmethod
    def write(samples, folder):
        import numpy as np
        from ffcv.fields import BytesField, IntField, RGBImageField
        from ffcv.writer import DatasetWriter
        from PIL import Image

        class Rows:
            def __len__(self):
                return len(samples)

            def __getitem__(self, position):
                file, label = samples.files[position % len(samples.files)]
                return np.asarray(Image.open(file).convert("RGB")), label

        fields = {"image": RGBImageField("jpg", jpeg_quality=90), "label": IntField()}
        DatasetWriter(str(folder / "x.beton"), fields, num_workers=WORKERS).from_indexed_dataset(Rows())
        return folder / "x.beton"

    @classmethod
    def open(cls, samples, folder, decoded):
        from ffcv.fields.decoders import IntDecoder
        from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import RandomHorizontalFlip, ToTensor

        if not decoded:
            return None
        image = [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip(), ToTensor()]
        pipelines = {"image": image, "label": [IntDecoder(), ToTensor()]}
        file = str(folder / "x.beton")
        order = OrderOption.RANDOM
        return Loader(file, batch_size=BATCH, num_workers=WORKERS, order=order, pipelines=pipelines, os_cache=True)


class Arrays(Format):
    """Base class of formats that store pixel arrays."""

    @classmethod
    def transform(cls, decoded):
        return augment_pixels if decoded else length_of_pixels


def length_of_pixels(original):
    return original.copy().nbytes


class Npy(Arrays):
    title = "`.npy` of pixels (`numpy`, mapped)"

    class Set(Indexed):
        def open(self):
            import numpy as np

            folder = pathlib.Path(self.path)
            return np.load(folder / "images.npy", mmap_mode="r"), np.load(folder / "labels.npy")

        def read(self, index):
            images, labels = self.reader
            return images[index], int(labels[index])

    @staticmethod
    def write(samples, folder):
        import numpy as np

        images, labels = samples.pixels()
        (folder / "set").mkdir()
        np.save(folder / "set" / "images.npy", images)
        np.save(folder / "set" / "labels.npy", labels)
        return folder / "set"

    @classmethod
    def open(cls, samples, folder, decoded):
        return cls.Set(folder / "set", len(samples), cls.transform(decoded))


class Npz(Arrays):
    # NumPy cannot read a single row of an archive, so the whole archive is in memory.
    title = "`.npz` of pixels (`numpy`, in memory)"

    class Set(Indexed):
        def read(self, index):
            images, labels = self.reader
            return images[index], int(labels[index])

    @staticmethod
    def write(samples, folder):
        import numpy as np

        images, labels = samples.pixels()
        np.savez(folder / "x.npz", images=images, labels=labels)
        return folder / "x.npz"

    @classmethod
    def open(cls, samples, folder, decoded):
        import numpy as np

        rows = cls.Set(folder / "x.npz", len(samples), cls.transform(decoded))
        file = np.load(folder / "x.npz")
        rows.reader = file["images"], file["labels"]
        return rows


class Safetensors(Arrays):
    title = "safetensors of pixels (`safetensors`)"

    class Set(Indexed):
        def open(self):
            from safetensors import safe_open

            file = safe_open(self.path, "numpy")
            return file.get_slice("images"), file.get_tensor("labels")

        def read(self, index):
            images, labels = self.reader
            return images[index : index + 1][0], int(labels[index])

    @staticmethod
    def write(samples, folder):
        from safetensors.numpy import save_file

        images, labels = samples.pixels()
        save_file({"images": images, "labels": labels}, folder / "x.safetensors")
        return folder / "x.safetensors"

    @classmethod
    def open(cls, samples, folder, decoded):
        return cls.Set(folder / "x.safetensors", len(samples), cls.transform(decoded))


class Torch(Arrays):
    title = "`.pt` of pixels (`torch`, mapped)"

    class Set(Indexed):
        def open(self):
            import torch

            file = torch.load(self.path, mmap=True)
            return file["images"], file["labels"]

        def read(self, index):
            images, labels = self.reader
            return images[index].numpy(), int(labels[index])

    @staticmethod
    def write(samples, folder):
        import torch

        images, labels = samples.pixels()
        torch.save({"images": torch.from_numpy(images), "labels": torch.from_numpy(labels)}, folder / "x.pt")
        return folder / "x.pt"

    @classmethod
    def open(cls, samples, folder, decoded):
        return cls.Set(folder / "x.pt", len(samples), cls.transform(decoded))


FORMATS = {
    "folder": Folder, "arrow": Arrow, "parquet": Parquet, "mds": Mds, "litdata": LitData, "lmdb": Lmdb, "tar": Tar,
    "tfrecord": TfRecord, "hdf5": Hdf5, "beton": Beton, "recordio": RecordIo, "npy": Npy, "npz": Npz,
    "safetensors": Safetensors, "torch": Torch,
}


def batches(name, rows, decoded):
    import torch

    if name == "beton":
        return rows
    loader = torch.utils.data.DataLoader
    if name == "litdata":
        from litdata import StreamingDataLoader as loader
    shuffle = {} if FORMATS[name].shuffles else {"shuffle": True}
    return loader(rows, batch_size=BATCH, num_workers=WORKERS, **shuffle)


def batch_length(batch):
    """Returns the number of samples in a batch."""
    return len(batch["label"] if isinstance(batch, dict) else batch[1])
