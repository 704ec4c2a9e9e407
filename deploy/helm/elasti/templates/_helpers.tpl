{{- define "elasti.name" -}}
{{- default .Chart.Name .Values.global.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The release name if it contains elasti. Short enough for the longest suffix. */}}
{{- define "elasti.fullname" -}}
{{- $name := include "elasti.name" . -}}
{{- if .Values.global.fullnameOverride }}
{{- .Values.global.fullnameOverride | trunc 26 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 26 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 26 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "elasti.operator" -}}{{ include "elasti.fullname" . }}-operator-controller-manager{{- end }}
{{- define "elasti.resolver" -}}{{ include "elasti.fullname" . }}-resolver{{- end }}

{{- define "elasti.selectorLabels" -}}
app.kubernetes.io/name: {{ include "elasti.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "elasti.operatorSelector" -}}
control-plane: controller-manager
{{ include "elasti.selectorLabels" . }}
{{- end }}

{{- define "elasti.resolverSelector" -}}
app: elasti-resolver
{{ include "elasti.selectorLabels" . }}
{{- end }}

{{/* Labels of one object: (list root selector map…); the last map wins. */}}
{{- define "elasti.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := dict
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/part-of" "elasti" -}}
{{- range $more := rest (rest .) }}{{- $labels = mergeOverwrite $labels (deepCopy ($more | default dict)) }}{{- end }}
{{- $labels = mergeOverwrite $labels (fromYaml (include (index . 1) $root)) }}
{{- toYaml $labels }}
{{- end }}

{{/* Annotations of one object, with their key, or nothing: (list map…); the last map wins. */}}
{{- define "elasti.annotations" -}}
{{- $all := dict -}}
{{- range $more := . }}{{- $all = mergeOverwrite $all (deepCopy ($more | default dict)) }}{{- end }}
{{- with $all }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
The image of a component: (list root image). KubeElasti's images do not know our flags, so a
values file that names one of them gets our image instead.
*/}}
{{- define "elasti.image" -}}
{{- $root := index . 0 -}}
{{- $own := index . 1 | default dict -}}
{{- $ours := $root.Values.global.image | default dict -}}
{{- $defaults := dict "registry" "" "repository" "elasti/elasti" "tag" "" -}}
{{- $repository := $own.repository | default $ours.repository | default $defaults.repository -}}
{{- $registry := $own.registry | default $ours.registry -}}
{{- $tag := $own.tag | default $ours.tag | default $root.Chart.AppVersion -}}
{{- if regexMatch "(^|/)elasti-(operator|resolver)$" $repository }}
{{- $repository = $ours.repository | default $defaults.repository -}}
{{- $registry = "" -}}
{{- $tag = $ours.tag | default $root.Chart.AppVersion -}}
{{- end }}
{{- with $registry }}{{ . }}/{{ end }}{{ $repository }}:{{ $tag }}
{{- end }}

{{/* Environment of both processes. */}}
{{- define "elasti.commonEnv" -}}
- name: KUBERNETES_CLUSTER_DOMAIN
  value: {{ .Values.global.kubernetesClusterDomain | quote }}
- name: ELASTI_OPERATOR_NAMESPACE
  value: {{ .Release.Namespace | quote }}
- name: ELASTI_OPERATOR_DEPLOYMENT_NAME
  value: {{ include "elasti.operator" . | quote }}
- name: ELASTI_OPERATOR_SERVICE_NAME
  value: {{ printf "%s-operator-controller-service" (include "elasti.fullname" .) | quote }}
- name: ELASTI_OPERATOR_PORT
  value: {{ .Values.elastiController.service.port | quote }}
- name: ELASTI_RESOLVER_NAMESPACE
  value: {{ .Release.Namespace | quote }}
- name: ELASTI_RESOLVER_DEPLOYMENT_NAME
  value: {{ include "elasti.resolver" . | quote }}
- name: ELASTI_RESOLVER_SERVICE_NAME
  value: {{ printf "%s-resolver-service" (include "elasti.fullname" .) | quote }}
- name: ELASTI_RESOLVER_PORT
  value: {{ .Values.elastiResolver.service.port | quote }}
- name: ELASTI_RESOLVER_PROXY_PORT
  value: {{ .Values.elastiResolver.reverseProxyService.port | quote }}
- name: WATCH_NAMESPACES
  value: {{ join "," .Values.global.allowedNamespaces | quote }}
{{- end }}

{{/* Sentry of a component: (list root sentry key). */}}
{{- define "elasti.sentryEnv" -}}
{{- $root := index . 0 -}}
{{- $sentry := index . 1 | default dict -}}
{{- if $sentry.enabled }}
- name: SENTRY_DSN
  valueFrom:
    secretKeyRef:
      name: {{ $root.Values.global.secretName }}
      key: {{ index . 2 }}
- name: SENTRY_ENVIRONMENT
  value: {{ $sentry.environment | quote }}
{{- end }}
{{- end }}

{{/*
The token that one process sends to the other: (list root audience). It is valid only for that audience, not for the API
server.
*/}}
{{- define "elasti.tokenVolume" -}}
- name: token
  projected:
    sources:
      - serviceAccountToken:
          audience: {{ index . 1 }}
          {{- /* Without TokenReview a token is valid until it expires, even if its pod is gone. */}}
          expirationSeconds: {{ empty (index . 0).Values.global.allowedNamespaces | ternary 3600 600 }}
          path: token
{{- end }}

{{/* The Secret with the certificate of both processes. */}}
{{- define "elasti.tlsSecret" -}}
{{ .Values.tls.secretName | default (printf "%s-tls" (include "elasti.fullname" .)) }}
{{- end }}

{{- define "elasti.tlsVolume" -}}
{{- if .Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "elasti.tlsSecret" . }}
{{- end }}
{{- end }}

{{- define "elasti.tlsMount" -}}
{{- if .Values.tls.enabled }}
- name: tls
  mountPath: /var/run/secrets/elasti-tls
  readOnly: true
{{- end }}
{{- end }}

{{/* Scheduling of a component's pods: (list root component selector). */}}
{{- define "elasti.placement" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- with $root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $component.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $onEveryNode := eq ($component.kind | default "Deployment") "DaemonSet" }}
{{- with $component.tolerations | default ($onEveryNode | ternary (list (dict "operator" "Exists")) list) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if not $onEveryNode }}
topologySpreadConstraints:
{{- if $component.topologySpreadConstraints }}
  {{- toYaml $component.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include (index . 2) $root | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}
