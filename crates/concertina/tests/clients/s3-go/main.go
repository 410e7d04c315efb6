// The AWS SDK for Go (version 2) as a client of the S3 front: put, get, ranges, list, an upload in parts, copy,
// metadata, conditions, signed URLs, delete. Prints "ok"; anything else is an error.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func same(what string, got, expected any) {
	if fmt.Sprint(got) != fmt.Sprint(expected) {
		panic(fmt.Sprintf("%s: %v, not %v", what, got, expected))
	}
}

func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return fmt.Sprint(err)
}

func read(body io.ReadCloser) []byte {
	defer body.Close()
	return must(io.ReadAll(body))
}

func main() {
	ctx, bucket := context.Background(), aws.String("objects")
	keys := credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), "")
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String("http://" + os.Args[1]), Region: "eu-central-1", UsePathStyle: true, Credentials: keys,
	})
	body := make([]byte, 6<<20)
	for at := range body {
		body[at] = byte(uint32(at) * 2654435761 >> 23)
	}
	key := aws.String("go/a b+c/ü.bin")
	put := must(client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: bucket, Key: key, Body: bytes.NewReader(body), ContentType: aws.String("audio/x"),
		Metadata: map[string]string{"artist": "somebody"}, ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
	}))
	got := must(client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key}))
	same("metadata", got.Metadata["artist"], "somebody")
	same("type", *got.ContentType, "audio/x")
	same("etag", *got.ETag, *put.ETag)
	same("body", bytes.Equal(read(got.Body), body), true)
	part := must(client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key, Range: aws.String("bytes=5-9")}))
	same("range", read(part.Body), body[5:10])
	_, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key, IfMatch: aws.String("\"other\"")})
	same("if-match", code(err), "PreconditionFailed")
	_, err = client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: key, Body: bytes.NewReader(nil), IfNoneMatch: aws.String("*")})
	same("if-none-match", code(err), "PreconditionFailed")
	_, err = client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("go/none")})
	same("none", code(err), "NoSuchKey")

	whole := aws.String("go/parts")
	upload := must(client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: whole}))
	var parts []types.CompletedPart
	for number, bytes_ := range [][]byte{body[:5<<20], body[5<<20:]} {
		n := aws.Int32(int32(number + 1))
		up := must(client.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: bucket, Key: whole, UploadId: upload.UploadId, PartNumber: n, Body: bytes.NewReader(bytes_),
		}))
		parts = append(parts, types.CompletedPart{ETag: up.ETag, PartNumber: n, ChecksumCRC32: up.ChecksumCRC32})
	}
	must(client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: bucket, Key: whole, UploadId: upload.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}))
	got = must(client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: whole}))
	same("parts", bytes.Equal(read(got.Body), body), true)

	must(client.CopyObject(ctx, &s3.CopyObjectInput{Bucket: bucket, Key: aws.String("go/copy"), CopySource: aws.String("objects/go/parts")}))
	head := must(client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: aws.String("go/copy")}))
	same("copy", *head.ContentLength, len(body))

	names := []string{}
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: bucket, Prefix: aws.String("go/"), MaxKeys: aws.Int32(2)})
	for pages.HasMorePages() {
		for _, object := range must(pages.NextPage(ctx)).Contents {
			names = append(names, *object.Key)
		}
	}
	same("list", names, []string{*key, "go/copy", "go/parts"})

	signed := must(s3.NewPresignClient(client).PresignGetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: key}, s3.WithPresignExpires(time.Minute)))
	reply := must(http.Get(signed.URL))
	same("signed URL", bytes.Equal(read(reply.Body), body), true)

	ids := []types.ObjectIdentifier{}
	for _, name := range names {
		ids = append(ids, types.ObjectIdentifier{Key: aws.String(name)})
	}
	gone := must(client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: bucket, Delete: &types.Delete{Objects: ids}}))
	same("deleted", len(gone.Deleted), 3)
	fmt.Println("ok")
}
