// Uses a memcached server, or a proxy, as applications do: bradfitz/gomemcache.
//
// usage: main PORT            ends with status 0 if all was as expected
//
//	main PORT cluster    the same before a cluster, which is not emptied by flush_all
//	main PORT kept       writes and reads for some seconds, in which a node of the cluster is killed:
//	                     no value may be lost or old, and writes have to go on
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func must(what string, ok bool) {
	if !ok {
		fmt.Println("failed:", what)
		os.Exit(1)
	}
}

func is(what string, err, expected error) {
	must(fmt.Sprintf("%s: %v instead of %v", what, err, expected), errors.Is(err, expected))
}

// Writes ascending numbers to some keys and reads them.
func kept(client *memcache.Client) {
	client.Timeout = 10 * time.Second
	acknowledged, tried := map[string]int{}, map[string]int{}
	for i := range 20 {
		acknowledged[fmt.Sprintf("gomemcache:%d", i)] = 0
	}
	write := func(key string) {
		tried[key]++
		value := []byte(strconv.Itoa(tried[key]))
		if client.Set(&memcache.Item{Key: key, Value: value}) == nil {
			acknowledged[key] = tried[key]
		}
	}
	read := func(key string) error {
		item, err := client.Get(key)
		if err == nil {
			number, _ := strconv.Atoi(string(item.Value))
			must(fmt.Sprintf("%s: read %s, %d of %d acknowledged", key, item.Value, acknowledged[key], tried[key]),
				acknowledged[key] <= number && number <= tried[key])
		}
		must("not lost: "+key, !errors.Is(err, memcache.ErrCacheMiss))
		return err
	}
	all := func() {
		for key := range acknowledged {
			before := acknowledged[key]
			for acknowledged[key] == before {
				write(key)
			}
		}
	}
	all()
	fmt.Println("written")
	for until := time.Now().Add(8 * time.Second); time.Now().Before(until); {
		for key := range acknowledged {
			write(key)
			_ = read(key)
		}
	}
	all()
	for key := range acknowledged {
		is("read", read(key), nil)
	}
}

func main() {
	client := memcache.New("127.0.0.1:" + os.Args[1])
	client.MaxIdleConns = 16
	mode := "server"
	if len(os.Args) > 2 {
		mode = os.Args[2]
	}
	if mode == "kept" {
		kept(client)
		return
	}
	if mode == "server" {
		is("flush", client.FlushAll(), nil)
	} else {
		must("flush", client.FlushAll() != nil)
		client.Timeout = 10 * time.Second
		_ = client.Delete("k")
	}
	is("ping", client.Ping(), nil)
	value := bytes.Repeat([]byte("\r\n\x00VALUE k 0 1\r\n"), 500)
	is("set", client.Set(&memcache.Item{Key: "k", Value: value, Flags: 77}), nil)
	item, err := client.Get("k")
	is("get", err, nil)
	must("value and flags", bytes.Equal(item.Value, value) && item.Flags == 77)
	_, err = client.Get("none")
	is("miss", err, memcache.ErrCacheMiss)
	is("add", client.Add(&memcache.Item{Key: "k", Value: []byte("x")}), memcache.ErrNotStored)
	is("replace", client.Replace(&memcache.Item{Key: "none", Value: []byte("x")}), memcache.ErrNotStored)
	item.Value = []byte("mid")
	is("cas", client.CompareAndSwap(item), nil)
	is("cas again", client.CompareAndSwap(item), memcache.ErrCASConflict)
	is("append", client.Append(&memcache.Item{Key: "k", Value: []byte(">")}), nil)
	is("prepend", client.Prepend(&memcache.Item{Key: "k", Value: []byte("<")}), nil)
	item, err = client.Get("k")
	must("pieces", err == nil && string(item.Value) == "<mid>")
	is("number", client.Set(&memcache.Item{Key: "n", Value: []byte("41")}), nil)
	number, err := client.Increment("n", 1)
	must("increment", err == nil && number == 42)
	number, err = client.Decrement("n", 50)
	must("decrement", err == nil && number == 0)
	is("touch", client.Touch("n", 100), nil)
	is("touch none", client.Touch("none", 100), memcache.ErrCacheMiss)
	item, err = client.GetAndTouch("n", 50)
	must("get and touch", err == nil && string(item.Value)[:1] == "0")
	is("delete", client.Delete("n"), nil)
	is("delete again", client.Delete("n"), memcache.ErrCacheMiss)

	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			var keys []string
			for i := range 100 {
				key := fmt.Sprintf("w%d:%d", worker, i)
				keys = append(keys, key, key+":none")
				is("set", client.Set(&memcache.Item{Key: key, Value: []byte(key)}), nil)
			}
			found, err := client.GetMulti(keys)
			must("multi", err == nil && len(found) == 100)
			for key, item := range found {
				must("of its own", string(item.Value) == key)
			}
		})
	}
	all.Wait()
	fmt.Println("ok")
}
