package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/millrace-go/millrace/event"
)

// The event types of expense claims.
const (
	saved          = "Declaration SAVED by EMPLOYEE"
	submitted      = "Declaration SUBMITTED by EMPLOYEE"
	withdrawn      = "Declaration REJECTED by EMPLOYEE"
	lost           = "Declaration REJECTED by MISSING"
	preApproved    = "Declaration APPROVED by PRE_APPROVER"
	preRejected    = "Declaration REJECTED by PRE_APPROVER"
	adminApproved  = "Declaration APPROVED by ADMINISTRATION"
	adminRejected  = "Declaration REJECTED by ADMINISTRATION"
	budgetApproved = "Declaration APPROVED by BUDGET OWNER"
	budgetRejected = "Declaration REJECTED by BUDGET OWNER"
	finalApproved  = "Declaration FINAL_APPROVED by SUPERVISOR"
	finalRejected  = "Declaration REJECTED by SUPERVISOR"
	requested      = "Request Payment"
	paid           = "Payment Handled"
)

// openClaims is how many claims are open at a time: enough that all writers have streams of their own.
const openClaims = 500

// transition is an event type that may follow another, and in what percentage of claims. The rest of 100 % ends there.
type transition struct {
	next    string
	percent int
}

// paths is the process: an employee submits a claim, and several roles approve or reject it. A rejected claim goes back
// to the employee, who submits it again or gives up. An approved claim is paid.
var paths = map[string][]transition{
	"": {{submitted, 99}, {saved, 1}},
	submitted: {
		{adminApproved, 69}, {adminRejected, 8}, {finalApproved, 15}, {preApproved, 6}, {preRejected, 1},
		{finalRejected, 1},
	},
	preApproved:    {{finalApproved, 98}, {finalRejected, 2}},
	preRejected:    {{withdrawn, 100}},
	adminApproved:  {{finalApproved, 63}, {budgetApproved, 34}, {finalRejected, 2}, {budgetRejected, 1}},
	adminRejected:  {{withdrawn, 100}},
	budgetApproved: {{finalApproved, 99}, {finalRejected, 1}},
	budgetRejected: {{withdrawn, 100}},
	finalRejected:  {{withdrawn, 100}},
	withdrawn:      {{submitted, 79}},
	finalApproved:  {{requested, 99}, {lost, 1}},
	lost:           {{submitted, 69}},
	requested:      {{paid, 100}},
}

// roles are the roles of the persons who cause the events. Other events are caused by the system.
var roles = map[string]string{
	saved: "EMPLOYEE", submitted: "EMPLOYEE", withdrawn: "EMPLOYEE", lost: "MISSING",
	preApproved: "PRE_APPROVER", preRejected: "PRE_APPROVER",
	adminApproved: "ADMINISTRATION", adminRejected: "ADMINISTRATION",
	budgetApproved: "BUDGET OWNER", budgetRejected: "BUDGET OWNER",
	finalApproved: "SUPERVISOR", finalRejected: "SUPERVISOR",
}

// claimData is the body of an event. Amount is a JSON number with two decimals, never a float.
type claimData struct {
	ID       string      `json:"id"`
	Role     string      `json:"role"`
	Resource string      `json:"resource"`
	Amount   json.Number `json:"amount"`
	Budget   string      `json:"budget"`
}

// claim is an open claim.
type claim struct {
	number int
	next   string
	steps  int
	amount json.Number
	budget string
}

// generate makes events of many interleaved claims. The same seed makes the same events.
func generate(events int64, seed uint64) source {
	return func(yield func(record, error) bool) {
		g := generator{random: rand.New(rand.NewPCG(seed, 0))}
		for range events {
			if !yield(g.next(), nil) {
				return
			}
		}
	}
}

type generator struct {
	random *rand.Rand
	begun  int
	open   []*claim
}

// next returns the next event of a random open claim.
func (g *generator) next() record {
	for len(g.open) < openClaims {
		g.open = append(g.open, g.begin())
	}
	i := g.random.IntN(len(g.open))
	c := g.open[i]
	r := c.record()
	c.next = g.follow(c.next)
	if c.next == "" {
		g.open[i] = g.begin()
	}
	return r
}

func (g *generator) begin() *claim {
	g.begun++
	// A product of two makes small amounts common and large ones rare.
	cents := (1 + g.random.IntN(400)) * (1 + g.random.IntN(100))
	return &claim{
		number: g.begun,
		next:   g.follow(""),
		amount: json.Number(fmt.Sprintf("%d.%02d", cents/100, cents%100)),
		budget: fmt.Sprintf("budget %d", 1+g.random.IntN(50)),
	}
}

// follow chooses the event type after last; empty ends the claim.
func (g *generator) follow(last string) string {
	dice := g.random.IntN(100)
	for _, s := range paths[last] {
		dice -= s.percent
		if dice < 0 {
			return s.next
		}
	}
	return ""
}

// record returns the claim's next event.
func (c *claim) record() record {
	c.steps++
	data := claimData{ID: fmt.Sprintf("st_step %d_%d", c.number, c.steps), Role: roles[c.next],
		Resource: "STAFF MEMBER",
		Amount:   c.amount, Budget: c.budget}
	if data.Role == "" {
		data.ID = fmt.Sprintf("dd_declaration %d_%d", c.number, c.steps)
		data.Role, data.Resource = "UNDEFINED", "SYSTEM"
	}
	return record{stream: fmt.Sprintf("declaration%d", c.number), event: event.Untyped(c.next, data)}
}
