from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


class DataLoader(Generic[T]):
    def __init__(self, dataset, batch_size=1, shuffle=None, collate_fn=None, num_workers=0, prefetch_factor=None, generator=None):
        if batch_size != 1 or shuffle or num_workers:
            raise NotImplementedError(f"batch_size={batch_size}, shuffle={shuffle}, num_workers={num_workers}: only 1, false and 0 are done here")
        self.dataset = dataset
        self.collate_fn = collate_fn

    def __iter__(self):
        for item in self.dataset:
            yield self.collate_fn([item])
