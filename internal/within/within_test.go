package within

import (
	"context"
	"errors"
	"testing"
)

func TestMarkHoldsForItsStoreUntilOutside(t *testing.T) {
	a, b := new(int), new(int)
	inA, endA := Mark(context.Background(), a)
	inBoth, _ := Mark(inA, b)
	outside := Outside(inBoth)
	again, _ := Mark(outside, a)
	check := func(when string, cases map[context.Context][4]bool) {
		t.Helper()
		for ctx, refused := range cases {
			got := [4]bool{}
			for i, err := range []error{Refuse(ctx, a), Refuse(ctx, b), RefuseOpen(ctx, a), RefuseOpen(ctx, b)} {
				got[i] = errors.Is(err, ErrWithinTx)
			}
			if got != refused {
				t.Errorf("%s: %v: refused %v, want %v", when, ctx, got, refused)
			}
		}
	}
	check("open", map[context.Context][4]bool{
		context.Background():          {},
		Outside(context.Background()): {},
		inA:                           {true, false, true, false},
		inBoth:                        {true, true, true, true},
		outside:                       {false, false, true, true},
		again:                         {true, false, true, true},
	})
	endA()
	check("ended", map[context.Context][4]bool{
		inA:                          {true, false, true, false},
		context.WithoutCancel(inA):   {true, false, true, false},
		outside:                      {false, false, false, true},
		Outside(inA):                 {},
		context.WithoutCancel(again): {true, false, true, true},
	})
}
