package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	defer client.Close()
	fail := func(what string, err error) {
		if err != nil {
			fmt.Println(what+":", err)
			os.Exit(1)
		}
	}
	fail("PING", client.Ping(ctx).Err())
	for number := int64(1); number <= 100; number++ {
		left, err := client.Do(ctx, "BUY", "1", "1").Int64()
		fail("BUY", err)
		if left != 100000-number {
			fail("BUY", fmt.Errorf("%d shares after %d orders", left, number))
		}
	}
	pipe := client.Pipeline()
	answers := make([]*redis.Cmd, 100)
	for at := range answers {
		answers[at] = pipe.Do(ctx, "SELL", "1", "1")
	}
	_, err := pipe.Exec(ctx)
	fail("pipeline", err)
	last, err := answers[99].Int64()
	fail("SELL", err)
	if last != 100000 {
		fail("SELL", fmt.Errorf("%d shares in the end", last))
	}
	fmt.Println("ok")
}
