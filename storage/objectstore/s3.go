package objectstore

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// bucket is a place at S3, or at what speaks its protocol.
type bucket struct {
	place
	core      *minio.Core
	tries     tries
	partBytes int64
	unsigned  bool        // there are no credentials
	loose     atomic.Bool // the service knows no conditions: they are looked up before
}

// metaSum is the metadata that holds the SHA-256 of an object.
const metaSum = "sha256"

// openS3 takes credentials, region and endpoint from where every program for S3 takes them.
func openS3(ctx context.Context, cfg Config, at place) (*bucket, error) {
	host, secure, err := s3Endpoint()
	if err != nil {
		return nil, err
	}
	roots, err := s3Roots()
	if err != nil {
		return nil, err
	}
	transport := newTransport(cfg.Idle, roots)
	creds, signed := s3Credentials(ctx, transport)
	region := cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if region == "" && host != amazon {
		region = "us-east-1" // servers of other makers take any and need not be asked
	}
	// Two attempts in the library are for the region that the first one learns; all else is tried again here.
	core, err := minio.NewCore(host, &minio.Options{Creds: creds, Secure: secure, Transport: transport, Region: region, MaxRetries: 2})
	if err != nil {
		return nil, fmt.Errorf("open %s at %s: %w", at, host, err)
	}
	core.SetAppInfo("tranche", "1")
	return &bucket{place: at, core: core, tries: triesOf(cfg), partBytes: cfg.PartBytes, unsigned: !signed}, nil
}

const amazon = "s3.amazonaws.com"

func s3Endpoint() (host string, secure bool, err error) {
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		text := os.Getenv(name)
		if text == "" {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Path != "" && u.Path != "/" {
			return "", false, fmt.Errorf("%w: %s: expected http://HOST:PORT or https://HOST", ErrURL, name)
		}
		return u.Host, u.Scheme == "https", nil
	}
	return amazon, true, nil
}

// s3Roots are the certificate authorities of AWS_CA_BUNDLE; nil = those of the system.
func s3Roots() (*x509.CertPool, error) {
	name := os.Getenv("AWS_CA_BUNDLE")
	if name == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("AWS_CA_BUNDLE: %s holds no certificate in PEM", name)
	}
	return roots, nil
}

// s3Credentials looks at the variables, the profiles, and what the machine or container is given; false where none has any, and
// requests go out unsigned.
func s3Credentials(ctx context.Context, transport *http.Transport) (*credentials.Credentials, bool) {
	sources := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	if os.Getenv("AWS_EC2_METADATA_DISABLED") != "true" {
		sources = append(sources, &credentials.IAM{Client: &http.Client{Transport: transport, Timeout: 3 * time.Second}})
	}
	found := credentials.NewChainCredentials(sources)
	v, err := found.GetWithContext(&credentials.CredContext{Client: &http.Client{Transport: transport, Timeout: time.Minute}, Context: ctx})
	if err != nil || v.AccessKeyID == "" {
		return credentials.NewStatic("", "", "", credentials.SignatureAnonymous), false
	}
	return found, true
}

// fault sorts what the library says.
func (b *bucket) fault(op, key string, err error) error {
	if err == nil {
		return nil
	}
	said := minio.ToErrorResponse(err)
	if said.StatusCode == 0 && said.Code == "" {
		return noAnswer(op, key, err)
	}
	e := &Error{Op: op, Key: key, Status: said.StatusCode, Code: said.Code, Kind: kindOf(said.StatusCode, said.Code)}
	switch {
	case e.Kind == ErrDenied && b.unsigned:
		e.Err = errors.New("no credentials were found in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profiles in ~/.aws, or the machine's role")
	case e.Kind == nil || e.Kind == ErrDenied:
		e.Err = errors.New(cmp.Or(said.Message, "the service gave no reason"))
	}
	return e
}

func (b *bucket) Put(ctx context.Context, key string, body io.ReaderAt, size int64, sum string, when Condition) (Object, error) {
	if b.loose.Load() && when != (Condition{}) {
		if err := b.holds(ctx, key, when); err != nil {
			return settled(ctx, b, key, size, sum, err)
		}
		when = Condition{}
	}
	put := b.putWhole
	if size > b.partBytes {
		put = b.putParts
	}
	etag, err := put(ctx, key, body, size, sum, when)
	if errors.Is(err, ErrConflict) {
		return settled(ctx, b, key, size, sum, err)
	}
	return Object{Key: key, Bytes: size, SHA256: sum, Version: etag}, err
}

// holds looks whether a condition is true at this moment.
func (b *bucket) holds(ctx context.Context, key string, when Condition) error {
	o, err := b.Stat(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound) && when.Version == "":
		return nil
	case err != nil && !errors.Is(err, ErrNotFound):
		return err
	case err != nil || when.Absent || o.Version != when.Version:
		return &Error{Op: "put", Key: key, Kind: ErrConflict}
	}
	return nil
}

// putOptions: without DisableContentSha256 a request that is not encrypted is signed in chunks of its own, and not over the sum.
func putOptions(sum string) minio.PutObjectOptions {
	return minio.PutObjectOptions{UserMetadata: map[string]string{metaSum: sum}, DisableContentSha256: true}
}

func conditions(o *minio.PutObjectOptions, when Condition) {
	if when.Absent {
		o.SetMatchETagExcept("*")
	}
	if when.Version != "" {
		o.SetMatchETag(when.Version)
	}
}

// putWhole sends an object in one request; the service compares the bytes with their signed sum.
func (b *bucket) putWhole(ctx context.Context, key string, body io.ReaderAt, size int64, sum string, when Condition) (etag string, err error) {
	o := putOptions(sum)
	conditions(&o, when)
	err = b.tries.do(ctx, func() error {
		info, err := b.core.PutObject(ctx, b.bucket, b.name(key), io.NewSectionReader(body, 0, size), size, "", sum, o)
		etag = info.ETag
		return b.fault("put", key, err)
	})
	return etag, err
}

// putParts sends an object in several requests. It is there when the last of them is answered; what does not come so far is aborted.
func (b *bucket) putParts(ctx context.Context, key string, body io.ReaderAt, size int64, sum string, when Condition) (etag string, err error) {
	var id string
	err = b.tries.do(ctx, func() error {
		id, err = b.core.NewMultipartUpload(ctx, b.bucket, b.name(key), putOptions(sum))
		return b.fault("begin to put", key, err)
	})
	if err != nil {
		return "", err
	}
	etag, err = b.fill(ctx, key, id, body, cut(size, b.partBytes), sum, when)
	if err != nil {
		return "", errors.Join(err, b.abort(ctx, key, id))
	}
	return etag, nil
}

func (b *bucket) fill(ctx context.Context, key, id string, body io.ReaderAt, c chunks, whole string, when Condition) (etag string, err error) {
	parts := make([]minio.CompletePart, c.count())
	err = each(ctx, len(parts), abreast, func(ctx context.Context, i int) error {
		offset, length := c.at(i)
		sum, err := sumOf(body, offset, length)
		if err != nil {
			return err
		}
		return b.tries.do(ctx, func() error {
			p, err := b.core.PutObjectPart(ctx, b.bucket, b.name(key), id, i+1, io.NewSectionReader(body, offset, length), length, minio.PutObjectPartOptions{Sha256Hex: sum, DisableContentSha256: true})
			parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: p.ETag}
			return b.fault("put a part of", key, err)
		})
	})
	if err != nil {
		return "", err
	}
	if when != (Condition{}) { // there are services that hold conditions of whole objects only
		if err := b.holds(ctx, key, when); err != nil {
			return "", err
		}
	}
	var o minio.PutObjectOptions
	conditions(&o, when)
	var gone error
	err = b.tries.do(ctx, func() error {
		info, err := b.core.CompleteMultipartUpload(ctx, b.bucket, b.name(key), id, parts, o)
		etag = info.ETag
		err = b.fault("complete", key, err)
		if e := (*Error)(nil); errors.As(err, &e) && e.Code == "NoSuchUpload" { // an upload is no more once it is complete: was the answer lost?
			gone = err
			return nil
		}
		return err
	})
	if gone != nil {
		made, err := settled(ctx, b, key, c.size, whole, gone)
		return made.Version, err
	}
	return etag, err
}

// abortTime is how long an upload that failed is waited for to be aborted; Sweep does what is left.
const abortTime = 10 * time.Second

// abort removes the parts of an upload, also where the caller's context has ended. A failure is no more than a reason to sweep later.
func (b *bucket) abort(ctx context.Context, key, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	return b.tries.do(ctx, func() error {
		err := b.fault("abort the upload of", key, b.core.AbortMultipartUpload(ctx, b.bucket, b.name(key), id))
		var e *Error
		if errors.As(err, &e) && (e.Status == http.StatusNotFound || e.Code == "NoSuchUpload") {
			return nil
		}
		return err
	})
}

func (b *bucket) Get(ctx context.Context, key string) (body io.ReadCloser, o Object, err error) {
	err = b.tries.do(ctx, func() error {
		var info minio.ObjectInfo
		body, info, _, err = b.core.GetObject(ctx, b.bucket, b.name(key), minio.GetObjectOptions{})
		o = objectOf(key, info)
		return b.fault("get", key, err)
	})
	return body, o, err
}

func (b *bucket) Stat(ctx context.Context, key string) (o Object, err error) {
	err = b.tries.do(ctx, func() error {
		info, err := b.core.StatObject(ctx, b.bucket, b.name(key), minio.StatObjectOptions{})
		o = objectOf(key, info)
		return b.fault("look for", key, err)
	})
	return o, err
}

func objectOf(key string, info minio.ObjectInfo) Object {
	return Object{Key: key, Bytes: info.Size, SHA256: info.Metadata.Get("X-Amz-Meta-" + metaSum), Version: info.ETag}
}

func (b *bucket) List(ctx context.Context) (list []Object, err error) {
	err = b.tries.do(ctx, func() error {
		list = nil
		for info := range b.core.ListObjectsIter(ctx, b.bucket, minio.ListObjectsOptions{Prefix: b.folder(), Recursive: true}) {
			if info.Err != nil {
				return b.fault("list", "", info.Err)
			}
			list = append(list, Object{Key: b.key(info.Key), Bytes: info.Size})
		}
		return nil
	})
	return list, err
}

func (b *bucket) Delete(ctx context.Context, key string) error {
	return b.tries.do(ctx, func() error {
		err := b.fault("delete", key, b.core.RemoveObject(ctx, b.bucket, b.name(key), minio.RemoveObjectOptions{}))
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}

// Sweep aborts the uploads in parts that are not complete. A service without a list of them has nothing to sweep.
func (b *bucket) Sweep(ctx context.Context) error {
	var after, afterID string
	for {
		var page minio.ListMultipartUploadsResult
		err := b.tries.do(ctx, func() (err error) {
			page, err = b.core.ListMultipartUploads(ctx, b.bucket, b.folder(), after, afterID, "", 1000)
			return b.fault("list the uploads", "", err)
		})
		var e *Error
		if errors.As(err, &e) && (e.Kind == ErrDenied || e.Status == http.StatusNotImplemented || e.Status == http.StatusMethodNotAllowed) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, u := range page.Uploads {
			if err := b.abort(ctx, b.key(u.Key), u.UploadID); err != nil {
				return err
			}
		}
		if !page.IsTruncated {
			return nil
		}
		after, afterID = page.NextKeyMarker, page.NextUploadIDMarker
	}
}
