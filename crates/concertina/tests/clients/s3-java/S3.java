// The AWS SDK for Java (version 2) as a client of the S3 front: put, get, ranges, list, an upload in parts, copy,
// metadata, conditions, signed URLs, delete. Prints "ok"; anything else is an error.

import java.io.InputStream;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import software.amazon.awssdk.awscore.exception.AwsServiceException;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.S3Configuration;
import software.amazon.awssdk.services.s3.model.ChecksumAlgorithm;
import software.amazon.awssdk.services.s3.model.CompletedPart;
import software.amazon.awssdk.services.s3.model.ObjectIdentifier;
import software.amazon.awssdk.services.s3.presigner.S3Presigner;

public class S3 {
    static final String BUCKET = "objects";

    static void same(String what, Object got, Object expected) {
        if (!Objects.equals(got, expected)) {
            throw new AssertionError(what + ": " + got + ", not " + expected);
        }
    }

    static String code(Runnable request) {
        try {
            request.run();
            return "none";
        } catch (AwsServiceException error) {
            return error.awsErrorDetails().errorCode();
        }
    }

    public static void main(String[] args) throws Exception {
        URI endpoint = URI.create("http://" + args[0]);
        S3Configuration paths = S3Configuration.builder().pathStyleAccessEnabled(true).build();
        byte[] body = new byte[6 << 20];
        for (int at = 0; at < body.length; at++) {
            body[at] = (byte) (at * 0x9e3779b1 >>> 23);
        }
        String key = "java/a b+c/ü.bin";
        try (S3Client s3 = S3Client.builder().endpointOverride(endpoint).region(Region.EU_CENTRAL_1)
                .serviceConfiguration(paths).build();
                S3Presigner presigner = S3Presigner.builder().endpointOverride(endpoint)
                        .region(Region.EU_CENTRAL_1).serviceConfiguration(paths).build()) {
            var put = s3.putObject(r -> r.bucket(BUCKET).key(key).contentType("audio/x")
                    .metadata(Map.of("artist", "somebody")).checksumAlgorithm(ChecksumAlgorithm.SHA256),
                    RequestBody.fromBytes(body));
            var got = s3.getObjectAsBytes(r -> r.bucket(BUCKET).key(key));
            same("metadata", got.response().metadata().get("artist"), "somebody");
            same("type", got.response().contentType(), "audio/x");
            same("etag", got.response().eTag(), put.eTag());
            same("body", Arrays.equals(got.asByteArray(), body), true);
            byte[] part = s3.getObjectAsBytes(r -> r.bucket(BUCKET).key(key).range("bytes=5-9")).asByteArray();
            same("range", Arrays.equals(part, Arrays.copyOfRange(body, 5, 10)), true);
            same("if-match", code(() -> s3.getObjectAsBytes(r -> r.bucket(BUCKET).key(key).ifMatch("\"other\""))),
                    "PreconditionFailed");
            same("if-none-match", code(() -> s3.putObject(r -> r.bucket(BUCKET).key(key).ifNoneMatch("*"),
                    RequestBody.empty())), "PreconditionFailed");
            same("none", code(() -> s3.getObjectAsBytes(r -> r.bucket(BUCKET).key("java/none"))), "NoSuchKey");

            String whole = "java/parts";
            String upload = s3.createMultipartUpload(r -> r.bucket(BUCKET).key(whole)).uploadId();
            List<CompletedPart> parts = new ArrayList<>();
            int cut = 5 << 20;
            for (byte[] bytes : List.of(Arrays.copyOf(body, cut), Arrays.copyOfRange(body, cut, body.length))) {
                int number = parts.size() + 1;
                var done = s3.uploadPart(r -> r.bucket(BUCKET).key(whole).uploadId(upload).partNumber(number),
                        RequestBody.fromBytes(bytes));
                parts.add(CompletedPart.builder().partNumber(number).eTag(done.eTag())
                        .checksumCRC32(done.checksumCRC32()).build());
            }
            s3.completeMultipartUpload(r -> r.bucket(BUCKET).key(whole).uploadId(upload)
                    .multipartUpload(u -> u.parts(parts)));
            byte[] joined = s3.getObjectAsBytes(r -> r.bucket(BUCKET).key(whole)).asByteArray();
            same("parts", Arrays.equals(joined, body), true);

            s3.copyObject(r -> r.sourceBucket(BUCKET).sourceKey(whole).destinationBucket(BUCKET)
                    .destinationKey("java/copy"));
            var head = s3.headObject(r -> r.bucket(BUCKET).key("java/copy"));
            same("copy", head.contentLength(), (long) body.length);

            List<String> names = new ArrayList<>();
            s3.listObjectsV2Paginator(r -> r.bucket(BUCKET).prefix("java/").maxKeys(2)).contents()
                    .forEach(object -> names.add(object.key()));
            same("list", names, List.of(key, "java/copy", whole));

            var signed = presigner.presignGetObject(r -> r.signatureDuration(Duration.ofMinutes(1))
                    .getObjectRequest(g -> g.bucket(BUCKET).key(key)));
            try (InputStream reply = signed.url().openStream()) {
                same("signed URL", Arrays.equals(reply.readAllBytes(), body), true);
            }

            List<ObjectIdentifier> ids = new ArrayList<>();
            names.forEach(name -> ids.add(ObjectIdentifier.builder().key(name).build()));
            var gone = s3.deleteObjects(r -> r.bucket(BUCKET).delete(d -> d.objects(ids)));
            same("deleted", gone.deleted().size(), 3);
        }
        System.out.println("ok");
    }
}
