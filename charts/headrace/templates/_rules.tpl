{{/* What the operator may do with Queues and what it makes for them: the verbs that its code uses, and no more. */}}
{{- define "headrace.rules" -}}
- apiGroups: [headrace.dev]
  resources: [queues]
  verbs: [get, list, watch]
- apiGroups: [headrace.dev]
  resources: [queues/status, queueversions/status]
  verbs: [patch]
# To own objects that block the deletion of their Queue.
- apiGroups: [headrace.dev]
  resources: [queues/finalizers]
  verbs: [update]
- apiGroups: [headrace.dev]
  resources: [queueversions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [patch]
# Only while workers do not come up, to say why.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
  {{- with .Values.secretNames }}
  resourceNames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
