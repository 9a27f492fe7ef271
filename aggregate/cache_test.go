package aggregate

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestCacheHasTheStatesThatWereUsedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(3 * (cachedOverhead + 20))
		key := func(i int) cacheKey { return cacheKey{stream: fmt.Sprint(i)} }
		keep := func(i, size int) { c.keep(&cached{cacheKey: key(i), state: make([]byte, size), begun: time.Now()}) }
		has := func(want ...int) {
			t.Helper()
			var got []int
			for i := range 10 {
				if c.states[key(i)] != nil {
					got = append(got, i)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("it has %v, want %v", got, want)
			}
			size := 0
			for at := c.recent.Front(); at != nil; at = at.Next() {
				size += at.Value.(*cached).size()
			}
			if size != c.size || size > c.max || len(got) != c.recent.Len() {
				t.Errorf("%d bytes, want %d", c.size, size)
			}
		}
		keep(1, 10)
		keep(2, 10)
		keep(3, 10)
		has(1, 2, 3)
		c.find(key(1))
		keep(4, 10)
		has(1, 3, 4)
		keep(3, 40)
		has(3, 4)
		keep(4, c.max)
		has(3)
		<-time.After(maxAge - time.Second)
		keep(5, 10)
		if c.find(key(3)) == nil {
			t.Error("a state is gone before its time")
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		has(5)
		if c.find(key(3)) != nil {
			t.Error("a state is used after its time")
		}
		<-time.After(maxAge)
		synctest.Wait()
		has()
	})
}
