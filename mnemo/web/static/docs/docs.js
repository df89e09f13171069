// The page of the OpenAPI document: Swagger UI, without what fits no service of one address.

/* global SwaggerUIBundle */
const nothing = () => () => null;
const labelled = (TextArea, { React }) => (props) =>
  React.createElement(TextArea, { "aria-label": "Body", ...props });
/** A link within a button cannot be reached; the button opens the operation already. */
const plainText = (_, { React }) => ({ text }) => React.createElement("span", null, text);

const ui = SwaggerUIBundle({
  url: "../openapi.json",
  domNode: document.getElementById("docs"),
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  displayRequestDuration: true,
  validatorUrl: null,
  plugins: [{ wrapComponents: { DeepLink: plainText, ServersContainer: nothing, TextArea: labelled } }],
  // The token of the inspector in this tab, if it has one.
  onComplete() {
    const token = sessionStorage.getItem("mnemo-token");
    if (token) ui.preauthorizeApiKey("token", token);
  },
});
