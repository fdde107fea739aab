package objectstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// blobs is a place at Azure Blob Storage.
type blobs struct {
	place
	client    *container.Client
	tries     tries
	partBytes int64
}

// openAZ takes account and credentials from the variables of Azure's own programs: a connection string, an account with its key or a
// token (SAS), or an account and whoever DefaultAzureCredential finds.
func openAZ(cfg Config, at place) (*blobs, error) {
	client, err := azClient(cfg, at)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", at, err)
	}
	return &blobs{place: at, client: client, tries: triesOf(cfg), partBytes: cfg.PartBytes}, nil
}

func azClient(cfg Config, at place) (*container.Client, error) {
	// Requests are tried again here alone.
	common := azcore.ClientOptions{
		Transport: &http.Client{Transport: newTransport(cfg.Idle, nil)},
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{ApplicationID: "tranche"},
	}
	options := &container.ClientOptions{ClientOptions: common}
	if text := os.Getenv("AZURE_STORAGE_CONNECTION_STRING"); text != "" {
		client, err := container.NewClientFromConnectionString(text, at.bucket, options)
		if err != nil {
			return nil, fmt.Errorf("%w: AZURE_STORAGE_CONNECTION_STRING is none", ErrURL) // the cause may repeat the key
		}
		return client, nil
	}
	account, key, sas := os.Getenv("AZURE_STORAGE_ACCOUNT"), os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_SAS_TOKEN")
	service := strings.TrimSuffix(os.Getenv("AZURE_STORAGE_SERVICE_ENDPOINT"), "/")
	if service == "" {
		service = "https://" + account + ".blob.core.windows.net"
	}
	where := service + "/" + at.bucket
	switch {
	case account == "":
		return nil, fmt.Errorf("%w: az:// needs AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING in the environment", ErrDenied)
	case key != "":
		shared, err := container.NewSharedKeyCredential(account, key)
		if err != nil {
			return nil, fmt.Errorf("%w: AZURE_STORAGE_KEY is no key in base64", ErrDenied)
		}
		return container.NewClientWithSharedKeyCredential(where, shared, options)
	case sas != "":
		return container.NewClientWithNoCredential(where+"?"+strings.TrimPrefix(sas, "?"), options)
	}
	found, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: azcore.ClientOptions{Transport: common.Transport}})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return container.NewClient(where, found, options)
}

// azFault sorts what the library says. Its own text goes over many lines and is left out.
func azFault(op, key string, err error) error {
	if err == nil {
		return nil
	}
	var said *azcore.ResponseError
	if errors.As(err, &said) {
		return &Error{Op: op, Key: key, Status: said.StatusCode, Code: said.ErrorCode, Kind: kindOf(said.StatusCode, said.ErrorCode)}
	}
	var refused *azidentity.AuthenticationFailedError
	if errors.As(err, &refused) || strings.HasPrefix(err.Error(), "DefaultAzureCredential") {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return &Error{Op: op, Key: key, Kind: ErrDenied, Err: errors.New(first)}
	}
	return noAnswer(op, key, err)
}

func access(when Condition) *blob.AccessConditions {
	var m blob.ModifiedAccessConditions
	if when.Absent {
		none := azcore.ETagAny
		m.IfNoneMatch = &none
	}
	if when.Version != "" {
		tag := azcore.ETag(when.Version)
		m.IfMatch = &tag
	}
	return &blob.AccessConditions{ModifiedAccessConditions: &m}
}

func (b *blobs) Put(ctx context.Context, key string, body io.ReaderAt, size int64, sum string, when Condition) (Object, error) {
	put := b.putWhole
	if size > b.partBytes {
		put = b.putParts
	}
	tag, err := put(ctx, key, body, size, sum, when)
	if errors.Is(err, ErrConflict) {
		return settled(ctx, b, key, size, sum, err)
	}
	return Object{Key: key, Bytes: size, SHA256: sum, Version: tag}, err
}

func (b *blobs) putWhole(ctx context.Context, key string, body io.ReaderAt, size int64, sum string, when Condition) (tag string, err error) {
	check, err := md5Of(body, 0, size)
	if err != nil {
		return "", err
	}
	err = b.tries.do(ctx, func() error {
		r, err := b.client.NewBlockBlobClient(b.name(key)).Upload(ctx, streaming.NopCloser(io.NewSectionReader(body, 0, size)), &blockblob.UploadOptions{
			Metadata: map[string]*string{metaSum: &sum}, TransactionalValidation: blob.TransferValidationTypeMD5(check), AccessConditions: access(when)})
		tag = text(r.ETag)
		return azFault("put", key, err)
	})
	return tag, err
}

// putParts stages blocks and commits them in one request. The service forgets blocks that are not committed after a week; the next
// upload of the same object drops them.
func (b *blobs) putParts(ctx context.Context, key string, body io.ReaderAt, size int64, sum string, when Condition) (tag string, err error) {
	client, c := b.client.NewBlockBlobClient(b.name(key)), cut(size, b.partBytes)
	ids := make([]string, c.count())
	err = each(ctx, len(ids), abreast, func(ctx context.Context, i int) error {
		offset, length := c.at(i)
		ids[i] = base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%05d", sum[:16], i))
		check, err := md5Of(body, offset, length)
		if err != nil {
			return err
		}
		return b.tries.do(ctx, func() error {
			_, err := client.StageBlock(ctx, ids[i], streaming.NopCloser(io.NewSectionReader(body, offset, length)),
				&blockblob.StageBlockOptions{TransactionalValidation: blob.TransferValidationTypeMD5(check)})
			return azFault("put a part of", key, err)
		})
	})
	if err != nil {
		return "", err
	}
	err = b.tries.do(ctx, func() error {
		r, err := client.CommitBlockList(ctx, ids, &blockblob.CommitBlockListOptions{Metadata: map[string]*string{metaSum: &sum}, AccessConditions: access(when)})
		tag = text(r.ETag)
		return azFault("complete", key, err)
	})
	return tag, err
}

func text(tag *azcore.ETag) string {
	if tag == nil {
		return ""
	}
	return string(*tag)
}

func (b *blobs) Get(ctx context.Context, key string) (body io.ReadCloser, o Object, err error) {
	err = b.tries.do(ctx, func() error {
		r, err := b.client.NewBlobClient(b.name(key)).DownloadStream(ctx, nil)
		body, o = r.Body, blobOf(key, r.ContentLength, r.ETag, r.Metadata)
		return azFault("get", key, err)
	})
	return body, o, err
}

func (b *blobs) Stat(ctx context.Context, key string) (o Object, err error) {
	err = b.tries.do(ctx, func() error {
		r, err := b.client.NewBlobClient(b.name(key)).GetProperties(ctx, nil)
		o = blobOf(key, r.ContentLength, r.ETag, r.Metadata)
		return azFault("look for", key, err)
	})
	return o, err
}

func blobOf(key string, size *int64, tag *azcore.ETag, meta map[string]*string) Object {
	o := Object{Key: key, Version: text(tag)}
	if size != nil {
		o.Bytes = *size
	}
	for name, v := range meta { // as a header, so in whatever case
		if v != nil && strings.EqualFold(name, metaSum) {
			o.SHA256 = *v
		}
	}
	return o
}

func (b *blobs) List(ctx context.Context) (list []Object, err error) {
	prefix := b.folder()
	err = b.tries.do(ctx, func() error {
		list = nil
		pager := b.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix})
		for pager.More() {
			page, err := pager.NextPage(ctx)
			if err != nil {
				return azFault("list", "", err)
			}
			if page.Segment == nil {
				continue
			}
			for _, item := range page.Segment.BlobItems {
				o := Object{Key: b.key(*item.Name)}
				if item.Properties != nil && item.Properties.ContentLength != nil {
					o.Bytes = *item.Properties.ContentLength
				}
				list = append(list, o)
			}
		}
		return nil
	})
	return list, err
}

func (b *blobs) Delete(ctx context.Context, key string) error {
	return b.tries.do(ctx, func() error {
		_, err := b.client.NewBlobClient(b.name(key)).Delete(ctx, nil)
		if err = azFault("delete", key, err); errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}

// Sweep has nothing to do: see putParts.
func (b *blobs) Sweep(context.Context) error { return nil }
