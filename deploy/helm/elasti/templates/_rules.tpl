{{/* Permissions of the operator where it serves: no wildcard, no Secret, no exec. */}}
{{- define "elasti.operatorRules" -}}
- apiGroups: [elasti.truefoundry.com]
  resources: [elastiservices]
  verbs: [get, list, watch, patch]
- apiGroups: [elasti.truefoundry.com]
  resources: [elastiservices/status]
  verbs: [patch]
# For the owner references of objects it creates, where the cluster enforces them.
- apiGroups: [elasti.truefoundry.com]
  resources: [elastiservices/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch]
- apiGroups: [apps]
  resources: [deployments/scale, statefulsets/scale]
  verbs: [get, update]
- apiGroups: [argoproj.io]
  resources: [rollouts]
  verbs: [get, list, watch]
- apiGroups: [argoproj.io]
  resources: [rollouts/scale]
  verbs: [get, update]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [get, list, watch, patch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- if .Values.dashboard.enabled }}
# The dashboard shows them.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, watch]
{{- end }}
{{- with .Values.global.scaleTargets }}
{{- range . }}
- apiGroups: [{{ .apiGroup | quote }}]
  resources: [{{ .resource }}]
  verbs: [get, list, watch]
- apiGroups: [{{ .apiGroup | quote }}]
  resources: [{{ .resource }}/scale]
  verbs: [get, update]
{{- end }}
{{- end }}
{{- end }}

{{/* Permissions of the resolver where it serves: read only. */}}
{{- define "elasti.resolverRules" -}}
- apiGroups: [elasti.truefoundry.com]
  resources: [elastiservices]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [services]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end }}

{{/* TokenReview needs a ClusterRole; without it tokens are checked against the API server's keys. */}}
{{- define "elasti.reviewRules" -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- end }}
