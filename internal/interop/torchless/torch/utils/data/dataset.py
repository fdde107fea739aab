from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


class IterableDataset(Generic[T]):
    def __iter__(self):
        raise NotImplementedError
