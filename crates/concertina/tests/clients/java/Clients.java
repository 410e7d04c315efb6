// Uses a memcached server, or a proxy, as applications do: spymemcached in text mode.
//
// usage: java -cp spymemcached.jar Clients.java PORT     ends with status 0 if all was as expected
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.MemcachedClient;

public class Clients {
    static void must(String what, boolean ok) {
        if (!ok) {
            System.out.println("failed: " + what);
            System.exit(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        MemcachedClient client = new MemcachedClient(new InetSocketAddress("127.0.0.1", port));
        must("flush", client.flush().get());
        must("set", client.set("k", 0, "text").get());
        must("get", "text".equals(client.get("k")));
        must("miss", client.get("none") == null);
        must("add", !client.add("k", 0, "x").get());
        must("replace", client.replace("k", 0, "mid").get());
        CASValue<Object> value = client.gets("k");
        must("cas", client.cas("k", value.getCas(), "new") == CASResponse.OK);
        must("cas again", client.cas("k", value.getCas(), "newer") == CASResponse.EXISTS);
        must("append", client.append("k", ">").get() && client.prepend("k", "<").get());
        must("pieces", "<new>".equals(client.get("k")));
        must("incr", client.incr("n", 1, 41) == 41 && client.incr("n", 1) == 42);
        must("decr", client.decr("n", 50) == 0);
        must("touch", client.touch("n", 100).get());
        List<Future<Boolean>> sets = new ArrayList<>();
        List<String> keys = new ArrayList<>();
        for (int i = 0; i < 2000; i++) {
            keys.add("key:" + i);
            sets.add(client.set("key:" + i, 0, i));
        }
        for (Future<Boolean> set : sets) {
            must("pipelined set", set.get());
        }
        // The client sends them as one get.
        Map<String, Object> found = client.getBulk(keys);
        must("bulk: " + found.size(), found.size() == 2000);
        for (int i = 0; i < 2000; i++) {
            must("of its own", Integer.valueOf(i).equals(found.get("key:" + i)));
        }
        must("delete", client.delete("k").get() && !client.delete("k").get());
        must("stats", client.getStats().values().iterator().next().containsKey("cmd_get"));
        must("version", client.getVersions().values().iterator().next().startsWith("1.6."));
        client.shutdown();
        System.out.println("ok");
    }
}
