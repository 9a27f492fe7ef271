package millrace

import (
	"encoding/json"
	"net/http"
	"path"

	"github.com/millrace-go/millrace/internal/health"
)

// HealthHandler returns a handler for the probes of an orchestrator such as Kubernetes. It answers GET and HEAD of
// paths that end in /livez and /readyz, and 404 for all others:
//
//	/livez   200 if Health.Live, 503 otherwise. It never uses the database.
//	/readyz  200 if Health.Ready, also while the runtime is degraded, and 503 otherwise.
//
// The body is JSON: {"live": false, "reasons": […]}, or {"ready": true, "reasons": […], "degraded": […], "deployment":
// […]}, without the lists that are empty. Reasons and degraded are those of this node: Health.NotReady, which decides,
// and Health.DegradedBy. Deployment is Health.Deployment, the same on each node. Reasons contain names and error texts
// of the database, so serve them only inside the cluster. docs/deployment.md describes the settings of the probes.
func HealthHandler(rt *Runtime) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check := path.Base(r.URL.Path)
		switch {
		case check != "livez" && check != "readyz":
			http.NotFound(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the method must be GET or HEAD", http.StatusMethodNotAllowed)
		case check == "livez":
			reasons := health.Short(rt.notLive())
			answer(w, len(reasons) == 0, liveness{Live: len(reasons) == 0, Reasons: reasons})
		default:
			h := rt.Health(r.Context())
			answer(w, h.Ready, readiness{Ready: h.Ready,
				Reasons: h.NotReady, Degraded: h.DegradedBy, Deployment: h.Deployment})
		}
	})
}

// liveness and readiness are the answers to probes.
type liveness struct {
	Live    bool     `json:"live"`
	Reasons []string `json:"reasons,omitempty"`
}

type readiness struct {
	Ready      bool     `json:"ready"`
	Reasons    []string `json:"reasons,omitempty"`
	Degraded   []string `json:"degraded,omitempty"`
	Deployment []string `json:"deployment,omitempty"`
}

func answer(w http.ResponseWriter, good bool, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !good {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(body) // the prober may have gone away
}
