// The certified OpenID provider of npm, with its own pages, a device login, revocation, and an exchange of tokens.
//
//   node oidc_provider.mjs MODULE PORT

import {pathToFileURL} from 'node:url';

const [module_, port] = process.argv.slice(2);
const {default: Provider, errors} = await import(pathToFileURL(module_).href);
const DEVICE = 'urn:ietf:params:oauth:grant-type:device_code';
const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';

const claims = id => ({sub: id, email: `${id}@example.org`, email_verified: true});
const client = {
  client_id: 'app',
  client_secret: 's3cret: of the node',
  redirect_uris: ['http://127.0.0.1/live'],
  application_type: 'native',
  response_types: ['code'],
  grant_types: ['authorization_code', 'refresh_token', DEVICE, EXCHANGE],
};
const provider = new Provider(`http://localhost:${port}`, {
  clients: [client],
  claims: {openid: ['sub'], email: ['email', 'email_verified']},
  conformIdTokenClaims: false,
  rotateRefreshToken: true,
  cookies: {keys: ['of this test only']},
  features: {deviceFlow: {enabled: true}, revocation: {enabled: true}, devInteractions: {enabled: true}},
  findAccount: (context, id) => ({accountId: id, claims: () => claims(id)}),
});

// RFC 8693: a user's access token becomes an ID token with the nonce that was asked for.
provider.registerGrantType(EXCHANGE, async context => {
  const {subject_token, nonce} = context.oidc.params;
  const found = subject_token && await provider.AccessToken.find(subject_token);
  if (!found || found.isExpired) throw new errors.InvalidGrant('no such access token');
  const token = new provider.IdToken(claims(found.accountId), {ctx: context});
  token.scope = 'openid email';
  token.set('nonce', nonce);
  context.body = {
    access_token: await token.issue({use: 'idtoken'}),
    issued_token_type: 'urn:ietf:params:oauth:token-type:id_token',
    token_type: 'N_A',
    expires_in: 300,
  };
}, ['subject_token', 'subject_token_type', 'requested_token_type', 'nonce', 'scope']);

provider.on('refresh_token.saved', token => process.stdout.write(`refresh ${token.jti}\n`));
provider.listen(Number(port), '127.0.0.1', () => process.stdout.write('listening\n'));
