# make BUCKET: makes it. rows OBJECTS FOLDER: reads Parquet files in a bucket as one table and compares it with a folder.
import os
import sys
from urllib.parse import urlparse

import pyarrow.dataset as ds
from pyarrow.fs import S3FileSystem

at = urlparse(os.environ["AWS_ENDPOINT_URL"])
s3 = S3FileSystem(endpoint_override=at.netloc, scheme=at.scheme, access_key=os.environ["AWS_ACCESS_KEY_ID"],
                  secret_key=os.environ["AWS_SECRET_ACCESS_KEY"], region="us-east-1", allow_bucket_creation=True)
if sys.argv[1] == "make":
    s3.create_dir(sys.argv[2])
else:
    there = ds.dataset(sys.argv[2], filesystem=s3).to_table().sort_by("episode_id")
    here = ds.dataset(sys.argv[3]).to_table().sort_by("episode_id")
    assert there.equals(here) and there.num_rows > 0, (there.num_rows, here.num_rows)
    print(f"pyarrow read {there.num_rows} rows of {len(there.schema)} columns from {at.netloc}/{sys.argv[2]}, equal to the folder's")
